//! The last known command state, for discovery without a native side.
//!
//! Draft discovery must not create a native conversation, yet many harnesses tell
//! their commands only inside one. A catalogue keeps what was last seen, per
//! workspace, in the provider's durable state, so that a draft can show it. It is
//! a memory, never a source of truth: modes are native read-back and are left out.

use crate::state::{self, Scope};
use crate::types::{ChannelError, Command, CommandState, Workspace};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// What is stored; another version is read as nothing.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    v: u8,
    commands: Vec<Command>,
    slash_commands: bool,
}

const VERSION: u8 = 1;

/// Remembers command states under one name. Using it imports `state`.
#[derive(Debug)]
pub struct Catalogue {
    name: &'static str,
    /// What this instance wrote or read last, so that equal states cost no write.
    known: RefCell<BTreeMap<String, Vec<u8>>>,
}

impl Catalogue {
    /// `name` tells apart the catalogues of one provider, e.g. one per agent.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            known: RefCell::new(BTreeMap::new()),
        }
    }

    /// Keeps the commands of `seen` for this workspace. Free when nothing changed.
    ///
    /// # Errors
    ///
    /// As [`state::set`].
    pub async fn remember(
        &self,
        workspace: Option<&Workspace>,
        seen: &CommandState,
    ) -> Result<(), ChannelError> {
        let key = self.key(workspace);
        let stored = Stored {
            v: VERSION,
            commands: seen.commands.clone(),
            slash_commands: seen.slash_commands,
        };
        let bytes = serde_json::to_vec(&stored)
            .map_err(|error| ChannelError::Failed(format!("catalogue: {error}")))?;
        if self.known.borrow().get(&key) == Some(&bytes) {
            return Ok(());
        }
        state::set(Scope::Project, &key, bytes.clone()).await?;
        self.known.borrow_mut().insert(key, bytes);
        Ok(())
    }

    /// The commands last seen in this workspace, with `note` telling the reader
    /// that they are remembered, or an empty state with that note.
    ///
    /// # Errors
    ///
    /// As [`state::get`].
    pub async fn recall(
        &self,
        workspace: Option<&Workspace>,
        note: &str,
    ) -> Result<CommandState, ChannelError> {
        let key = self.key(workspace);
        let stored = state::get(Scope::Project, &key)
            .await?
            .and_then(|bytes| serde_json::from_slice::<Stored>(&bytes).ok())
            .filter(|stored| stored.v == VERSION);
        let (commands, slash_commands) = stored.map_or_else(
            || (Vec::new(), false),
            |stored| (stored.commands, stored.slash_commands),
        );
        Ok(CommandState {
            commands,
            modes: Vec::new(),
            slash_commands,
            note: Some(note.to_owned()),
        })
    }

    fn key(&self, workspace: Option<&Workspace>) -> String {
        let workspace = match workspace {
            None => "none",
            Some(Workspace::Local(local)) => &local.id,
            Some(Workspace::Remote(remote)) => &remote.id,
        };
        format!("catalogue/{}/{workspace}", self.name)
    }
}
