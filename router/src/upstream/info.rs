//! What llama-server says of its slots (`/slots`) and of itself (`/props` and others).

use std::path::PathBuf;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Upstream, UpstreamError};
use crate::slots::{Progress, Reading, SeenSlot};

/// What `/health` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It serves.
    Well,
    /// It loads its model.
    Loading,
    /// Nobody listens there, the connection broke, or a router there can't reach it.
    Unreachable,
    /// It does not answer; how long to wait is the caller's to say.
    Silent,
}

/// What `/props` tells.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
pub struct Props {
    /// How many slots there are; `None` in llama.cpp's own router mode.
    pub total_slots: Option<u32>,
    /// The build.
    #[serde(default)]
    pub build_info: String,
    /// The model's name.
    #[serde(default)]
    pub model_alias: String,
    /// Where it was loaded from, on the server's machine.
    #[serde(default)]
    model_path: String,
    #[serde(default)]
    default_generation_settings: GenerationSettings,
}

#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
struct GenerationSettings {
    n_ctx: Option<u64>,
}

impl Props {
    /// Context per slot, in tokens.
    #[must_use]
    pub fn context(&self) -> Option<u64> {
        self.default_generation_settings.n_ctx
    }

    /// What has to be the same for stored marks to mean anything: build, model, slots and context.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let slots = number(self.total_slots.map(u64::from));
        format!("{} {} slots={slots} ctx={}", self.build_info, self.model_alias, number(self.context()))
    }
}

#[derive(Deserialize)]
struct SlotEntry {
    id_task: Option<i64>,
    n_prompt_tokens: Option<u64>,
    #[serde(default)]
    is_processing: bool,
    n_prompt_tokens_processed: Option<u64>,
    next_token: Option<NextToken>,
}

/// How far the answer has come: an array of one, or in older builds the object itself.
#[derive(Deserialize)]
#[serde(untagged)]
enum NextToken {
    Many(Vec<Decoded>),
    One(Decoded),
    /// Whatever else a build may say here is no reason to lose the slots.
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Decoded {
    n_decoded: Option<u64>,
}

impl NextToken {
    fn decoded(&self) -> Option<u64> {
        match self {
            Self::Many(tokens) => tokens.first()?.n_decoded,
            Self::One(token) => token.n_decoded,
            Self::Other(_) => None,
        }
    }
}

impl Upstream {
    /// Asks `/slots`. Never [`Reading::Silent`]: how long to wait is the caller's to say.
    pub async fn slots(&self) -> Reading {
        match self.get("/slots").await {
            Ok((StatusCode::OK, body)) => match serde_json::from_slice::<Vec<SlotEntry>>(&body) {
                Ok(entries) if !entries.is_empty() => {
                    Reading::Slots(entries.into_iter().map(SeenSlot::from).collect())
                }
                _ => self.blind().await,
            },
            Ok((StatusCode::SERVICE_UNAVAILABLE, _)) => Reading::Loading,
            Ok(_) => self.blind().await,
            Err(UpstreamError::Unreachable { refused: true, .. }) => Reading::Refused,
            // Not a word about the server: a network in trouble, or this process out of file descriptors.
            Err(_) => Reading::Silent,
        }
    }

    async fn blind(&self) -> Reading {
        Reading::Blind(self.props().await.and_then(|props| props.total_slots).filter(|count| *count > 0))
    }

    /// Asks `/health`.
    pub async fn health(&self) -> Health {
        match self.get("/health").await {
            Ok((StatusCode::SERVICE_UNAVAILABLE, _)) => Health::Loading,
            // Another router's word for a server that can't be reached.
            Ok((StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT, _)) => Health::Unreachable,
            // Whatever else it says, it is there.
            Ok(_) => Health::Well,
            Err(UpstreamError::Unreachable { refused: true, .. } | UpstreamError::Broken { .. }) => {
                Health::Unreachable
            }
            // Not a word about the server: a network in trouble, or this process out of file descriptors.
            Err(_) => Health::Silent,
        }
    }

    /// Asks `/v1/models`; `None` if there is no such page.
    pub async fn models(&self) -> Option<Bytes> {
        let (status, page) = self.get("/v1/models").await.ok()?;
        (status == StatusCode::OK).then_some(page)
    }

    /// Asks `/props`; `None` if there is none.
    pub async fn props(&self) -> Option<Props> {
        self.page("/props").await
    }

    /// What has to be the same for saved states to be of use, as far as the server's pages tell; `props` is what it has just
    /// said. Of the types of its cache no page says anything: `cache_types` is what its command line says, if that can be
    /// seen. A build that was made without a version calls itself `b0-unknown`: then the model, the context and the layout
    /// of its states have to do. `None`: it did not say just now.
    pub async fn identity(&self, props: &Props, cache_types: Option<&str>) -> Option<String> {
        let models = self.optional_page("/v1/models").await?;
        let adapters = self.optional_page("/lora-adapters").await?;
        let meta = models.as_ref().map_or(&Value::Null, |models| &models["data"][0]["meta"]);
        let model = if props.model_path.is_empty() { &props.model_alias } else { &props.model_path };
        let file = file_mark(PathBuf::from(&props.model_path)).await;
        Some(format!(
            "{} {model} file={} params={} size={} ctx={} kv={} lora={}",
            props.build_info,
            file.unwrap_or_else(|| "?".to_owned()),
            meta["n_params"],
            meta["size"],
            props.context().unwrap_or_default(),
            cache_types.unwrap_or("?"),
            adapters.map_or_else(|| "?".to_owned(), |adapters| adapters_in_force(&adapters)),
        ))
    }

    /// A page that not every build has; `None`: whether this one has it was not to be learned.
    async fn optional_page(&self, path: &'static str) -> Option<Option<Value>> {
        match self.get(path).await.ok()? {
            (StatusCode::OK, body) => serde_json::from_slice(&body).ok().map(Some),
            (status, _) if status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED => Some(None),
            _ => None,
        }
    }

    async fn page<T: DeserializeOwned>(&self, path: &'static str) -> Option<T> {
        let (status, body) = self.get(path).await.ok()?;
        (status == StatusCode::OK).then(|| serde_json::from_slice(&body).ok())?
    }
}

impl From<SlotEntry> for SeenSlot {
    fn from(entry: SlotEntry) -> Self {
        Self {
            id_task: entry.id_task,
            tokens: entry.n_prompt_tokens,
            processing: entry.is_processing,
            progress: Progress {
                read: entry.n_prompt_tokens_processed,
                generated: entry.next_token.and_then(|token| token.decoded()),
            },
        }
    }
}

/// Length and time of the model's file, if it can be seen from here. On another thread: it may lie on a network that
/// has gone.
async fn file_mark(model: PathBuf) -> Option<String> {
    let look = move || {
        let file = std::fs::metadata(model).ok().filter(std::fs::Metadata::is_file)?;
        let changed = file.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(format!("{}@{}", file.len(), changed.as_secs()))
    };
    tokio::task::spawn_blocking(look).await.ok()?
}

fn adapters_in_force(adapters: &Value) -> String {
    let adapters = adapters.as_array().map_or(&[][..], Vec::as_slice);
    let shown = adapters.iter().map(|adapter| format!("{}*{}", adapter["path"], adapter["scale"]));
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}
