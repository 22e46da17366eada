//! Which servers may serve a request: those that have its model.

use std::collections::HashMap;

use super::types::{Eligible, ServerId};

/// What each server has.
#[derive(Debug)]
pub(super) struct Models {
    /// Every server, in order.
    all: Vec<ServerId>,
    /// By server: each model under all its names; `None`: not known yet.
    of: Vec<Option<Vec<String>>>,
    /// By name: who has it, in order.
    by_name: HashMap<String, Vec<ServerId>>,
    /// Those that have not said yet what they have, in order.
    silent: Vec<ServerId>,
}

impl Models {
    pub(super) fn new(servers: usize) -> Self {
        let all: Vec<ServerId> = (0..servers as u32).map(ServerId).collect();
        Self { silent: all.clone(), all, of: vec![None; servers], by_name: HashMap::new() }
    }

    /// A server has just these.
    pub(super) fn learn(&mut self, server: ServerId, models: Vec<String>) {
        let of = &mut self.of[server.index()];
        if of.as_ref() == Some(&models) {
            return;
        }
        *of = Some(models);
        self.silent.retain(|silent| *silent != server);
        self.by_name.clear();
        for (server, names) in self.all.iter().zip(&self.of) {
            for name in names.iter().flatten() {
                let having = self.by_name.entry(name.clone()).or_default();
                if having.last() != Some(server) {
                    having.push(*server);
                }
            }
        }
    }

    /// Who may serve it, in order; nobody, if nobody has the model. As long as nobody is known to have it, those may that have
    /// not said yet what they have.
    pub(super) fn candidates(&self, of: &Eligible) -> &[ServerId] {
        match of {
            Eligible::Any => &self.all,
            Eligible::Only(server) => self.all.get(server.index()..=server.index()).unwrap_or_default(),
            Eligible::Model(name) => self.by_name.get(&**name).unwrap_or(&self.silent),
        }
    }

    pub(super) fn of(&self, server: ServerId) -> Option<&Vec<String>> {
        self.of[server.index()].as_ref()
    }

    /// Every name, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.by_name.keys().cloned().collect();
        names.sort_unstable();
        names
    }
}
