//! The command line: every flag, its environment variable and its help.
//!
//! The help texts are part of the interface: `tests/help.rs` compares them with stored ones.
//!
//! Deliberately not here: defaults that a configuration file can change. A flag that was not given
//! is `None`, so that the file decides.

use clap::{Args, Parser, Subcommand, ValueEnum};
use harness_core::ids::{ProjectId, TokenId};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serve sandboxed agent harnesses behind one HTTP API.
#[derive(Debug, Parser)]
#[command(
    name = "harness",
    version,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// What to do; serving when absent.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Flags of `serve`, for a call without a subcommand.
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the HTTP API (the default)
    Serve(ServeArgs),
    /// Look at provider components
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Manage API tokens of a data directory
    #[command(subcommand)]
    Token(TokenCommand),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// Flags of `serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on [default: 127.0.0.1:7717]
    ///
    /// An address that is not loopback needs `server.tls` in the configuration or --behind-proxy.
    #[arg(
        long,
        env = "HARNESS_LISTEN",
        hide_env_values = true,
        value_name = "ADDRESS:PORT"
    )]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Provider component to serve, without grants and with default limits; may be repeated
    ///
    /// Grants, settings and limits of a provider need a `[[provider]]` table in the configuration.
    #[arg(
        long = "provider",
        env = "HARNESS_PROVIDER",
        hide_env_values = true,
        value_name = "FILE.wasm",
        value_delimiter = ','
    )]
    pub(crate) providers: Vec<PathBuf>,
    /// Form of the logs on standard error; `json` also prints one JSON line on standard output once
    /// the host is ready
    #[arg(
        long,
        env = "HARNESS_LOG_FORMAT",
        hide_env_values = true,
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,
    /// A reverse proxy in front of the host ends TLS; allows a --listen that is not loopback
    #[arg(long, env = "HARNESS_BEHIND_PROXY", hide_env_values = true)]
    pub(crate) behind_proxy: bool,
}

/// Where the data is.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataArgs {
    /// Directory of the host's data, created when missing [default: $XDG_DATA_HOME/harness, else
    /// ~/.local/share/harness]
    #[arg(
        long,
        env = "HARNESS_DATA_DIR",
        hide_env_values = true,
        value_name = "DIR"
    )]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Where the configuration is.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file (TOML); without one everything has its default
    #[arg(
        long,
        env = "HARNESS_CONFIG",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub(crate) config: Option<PathBuf>,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One readable line an event.
    Text,
    /// One JSON object a line.
    Json,
}

/// Commands on components.
#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// Show what a component asks for and what it is granted, without running it
    Inspect {
        /// The component
        #[arg(value_name = "FILE.wasm")]
        file: PathBuf,
        #[command(flatten)]
        config: ConfigArgs,
    },
}

/// Commands on tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it, once
    Create {
        /// What the token is called in lists
        #[arg(long, value_name = "NAME")]
        name: String,
        /// What the token allows; may be repeated [default: read, invoke]
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<Scope>,
        /// Only this project; may be repeated [default: all projects]
        #[arg(long = "project", value_name = "ID")]
        projects: Vec<ProjectId>,
        #[command(flatten)]
        store: TokenStoreArgs,
    },
    /// List tokens, without their secrets
    List {
        #[command(flatten)]
        store: TokenStoreArgs,
    },
    /// Revoke a token
    Revoke {
        /// Id of the token, as listed
        #[arg(value_name = "ID")]
        id: TokenId,
        #[command(flatten)]
        store: TokenStoreArgs,
    },
}

/// Where the tokens are.
///
/// A data directory belongs to one process: while a host runs on it, its HTTP API is asked instead,
/// with the admin token of the environment.
#[derive(Debug, Clone, Args)]
pub(crate) struct TokenStoreArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Admin token to use when a running host holds the data directory
    #[arg(
        long,
        env = "HARNESS_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<String>,
    /// Base URL of the running host [default: what it wrote into its data directory]
    #[arg(long, env = "HARNESS_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) url: Option<String>,
}

/// Scope of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Read sessions, events and harnesses
    Read,
    /// Prompt, run operations, answer gates
    Invoke,
    /// Manage providers, tokens, projects and workspaces, read metrics
    Admin,
}

/// Commands on the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file and the components it names, without serving
    Check {
        #[command(flatten)]
        config: ConfigArgs,
    },
}
