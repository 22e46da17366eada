//! The models of all servers, and what they are called.

use std::time::Duration;

use super::{NoSeat, NotSeated, Servers, Several};
use crate::fleet::ServerId;
use crate::fleet::naming::{self, Listing};

impl Servers {
    /// The answer to `/v1/models` for all servers, from what each last answered. Of those that are down as well: they may
    /// be back when one is asked for. `None`: there is one server.
    pub(crate) fn models(&self) -> Option<String> {
        let several = self.several.as_ref()?;
        let catalogs: Vec<_> = self.members.iter().map(|member| (member, member.catalog())).collect();
        let listings = catalogs.iter().map(|(member, catalog)| Listing {
            host: several.hosts.is_some().then_some(&*member.name),
            page: catalog.page.as_deref(),
            only: catalog.names.as_deref(),
        });
        Some(naming::union(&listings.collect::<Vec<_>>()))
    }

    /// Why a request gets no server whose model none has.
    pub(crate) fn unknown_model(&self) -> NotSeated {
        let known = naming::known(self.model_names());
        NotSeated { why: NoSeat::UnknownModel { known }, retry_after: Duration::ZERO }
    }

    fn model_names(&self) -> Vec<String> {
        let Some(several) = &self.several else { return Vec::new() };
        if several.hosts.is_none() {
            return several.room.lock().fleet.models();
        }
        let hosted = self.members.iter().flat_map(|member| {
            let models = member.models().unwrap_or_default();
            models.into_iter().map(|model| naming::hosted(&member.name, &model))
        });
        hosted.collect()
    }

    /// The server whose name stands in front of a model's, and what that server calls it. `None`: none has such a model.
    pub(super) fn host_of<'m>(&self, several: &Several, model: &'m str) -> Option<(ServerId, &'m str)> {
        let may_have = |(server, own): &(ServerId, &str)| self.member(*server).may_have(own);
        several.hosts.as_ref()?.split(model).find(may_have)
    }
}
