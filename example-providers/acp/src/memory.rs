//! The last known commands of an agent in a workspace, for discovery before a
//! conversation exists.
//!
//! An agent tells its commands only inside a conversation, and discovery must not
//! begin one. So what was last told is kept in the durable state of the project.
//! Modes are not kept: what is current in a conversation that does not exist is
//! nothing.

use crate::protocol::{AgentInfo, AvailableCommand};
use harness_guest::state::{self, Scope};
use harness_guest::types::{ChannelError, Workspace};
use serde::{Deserialize, Serialize};

const FORMAT: u8 = 1;

/// What is kept; a record of another format is read as nothing.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Memory {
    format: u8,
    /// Name of the agent that told them.
    pub(crate) agent: String,
    pub(crate) version: String,
    pub(crate) commands: Vec<AvailableCommand>,
}

impl Memory {
    pub(crate) fn new(info: &AgentInfo, commands: &[AvailableCommand]) -> Self {
        Self {
            format: FORMAT,
            agent: info.name.clone(),
            version: info.version.clone(),
            commands: commands.to_vec(),
        }
    }

    /// Whether it is of the agent that is there now, as far as that is known.
    pub(crate) fn is_of(&self, info: Option<&AgentInfo>) -> bool {
        info.is_none_or(|info| info.name == self.agent)
    }
}

pub(crate) async fn recall(workspace: Option<&Workspace>) -> Result<Option<Memory>, ChannelError> {
    match state::load::<Memory>(Scope::Project, &key(workspace)).await {
        Ok(memory) => Ok(memory.filter(|memory| memory.format == FORMAT)),
        Err(ChannelError::Failed(reason)) => {
            tracing::warn!("the remembered commands cannot be read: {reason}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(crate) async fn keep(
    workspace: Option<&Workspace>,
    memory: &Memory,
) -> Result<(), ChannelError> {
    state::save(Scope::Project, &key(workspace), memory).await
}

fn key(workspace: Option<&Workspace>) -> String {
    let workspace = match workspace {
        None => "none",
        Some(Workspace::Local(local)) => &local.id,
        Some(Workspace::Remote(remote)) => &remote.id,
    };
    format!("commands/{workspace}")
}
