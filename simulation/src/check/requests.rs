//! What loops tell their delegates: each request settles once, and a background one is handed back
//! once (S41, S72, S96).

use super::Found;
use harness_core::ids::CommandId;
use std::collections::BTreeMap;

#[derive(Default)]
struct Request {
    accepted: bool,
    background: bool,
    settled: bool,
    /// Its parent took it back: it is not handed back.
    withdrawn: bool,
    handed_back: bool,
}

/// The requests of one session.
#[derive(Default)]
pub(super) struct Requests(BTreeMap<CommandId, Request>);

impl Requests {
    /// The intent is durable.
    pub(super) fn sent(&mut self, id: CommandId, background: bool) {
        let request = Request {
            background,
            ..Request::default()
        };
        self.0.insert(id, request);
    }

    pub(super) fn accepted(&mut self, id: CommandId) -> Found {
        let request = self.of(id)?;
        if std::mem::replace(&mut request.accepted, true) {
            return Err(format!("{id} was accepted twice (S96)"));
        }
        Ok(())
    }

    /// Its parent takes it back.
    pub(super) fn withdrawn(&mut self, id: CommandId) -> Found {
        self.of(id)?.withdrawn = true;
        Ok(())
    }

    pub(super) fn settled_as(&mut self, id: CommandId) -> Found {
        let request = self.of(id)?;
        if !request.accepted {
            return Err(format!("{id} settled and was never accepted (S96)"));
        }
        if std::mem::replace(&mut request.settled, true) {
            return Err(format!("{id} settled twice (S96)"));
        }
        Ok(())
    }

    pub(super) fn handed_back(&mut self, id: Option<CommandId>) -> Found {
        let id = id.ok_or("a hand-back without its request")?;
        let request = self.of(id)?;
        if !request.background || !request.settled || request.withdrawn {
            return Err(format!(
                "{id} was handed back before it settled, or at all (S96)"
            ));
        }
        if std::mem::replace(&mut request.handed_back, true) {
            return Err(format!("{id} was handed back twice (S96)"));
        }
        Ok(())
    }

    /// Nothing is under way.
    pub(super) fn settled(&self) -> Found {
        let open = |r: &&Request| {
            r.accepted && (!r.settled || r.background && !r.handed_back && !r.withdrawn)
        };
        match self.0.iter().find(|(_, r)| open(r)) {
            None => Ok(()),
            Some((id, r)) => Err(format!(
                "{id} settled: {}, handed back: {} (S96)",
                r.settled, r.handed_back
            )),
        }
    }

    fn of(&mut self, id: CommandId) -> Result<&mut Request, String> {
        self.0
            .get_mut(&id)
            .ok_or_else(|| format!("unknown request {id}"))
    }
}
