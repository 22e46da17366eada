//! The identity rules as a WASM module for JavaScript agents. The rules are `session-slot-identity`'s; nothing is
//! decided here. What users see, with its documentation, is `index.js` and `index.d.ts` beside this folder.
use session_slot_identity::{Attachment, SessionId};
use wasm_bindgen::prelude::wasm_bindgen;

/// The id under which a session is routed.
#[wasm_bindgen(js_name = routingId)]
#[must_use]
pub fn routing_id(session_id: &str) -> String {
    session_slot_identity::routing_id(session_id).into_owned()
}

/// How an agent is driven, as one word.
#[wasm_bindgen(js_name = clientType)]
#[must_use]
pub fn client_type(platform: &str, session_id: &str) -> String {
    session_slot_identity::client_type(platform, session_id).to_owned()
}

/// Whether `url` names the router's port, which is `port` or the default one.
#[wasm_bindgen(js_name = targetsRouter)]
#[must_use]
pub fn targets_router(url: &str, port: &str) -> bool {
    session_slot_identity::targets_router(url, port)
}

/// `body` with the session's members set; nothing where it is no JSON object, or where the router would refuse the id.
#[wasm_bindgen]
#[must_use]
pub fn attach(body: &str, agent_name: &str, session_id: &str, platform: &str) -> Option<String> {
    let routed = SessionId::new(session_id).ok()?;
    let client_type = session_slot_identity::client_type(platform, session_id);
    let session = Attachment { agent_name, session_id: routed.as_str(), client_type };
    session_slot_identity::attach(body, &session)
}
