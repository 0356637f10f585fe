//! The `harness` binary: composes store, engine, sessions and HTTP API, and offers what an
//! operator does around them.
//!
//! This is the one place that knows every crate. It holds no rule of the product: it reads the
//! configuration, plugs implementations into ports, and says what happened in words a person can
//! act on.

mod args;
mod config;
mod data_dir;
mod embedded;
mod failure;
mod provider;
mod serve;
mod snapshots;
mod telemetry;
mod text;
mod token;

use args::{Cli, Command, ConfigCommand, ProviderCommand};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

/// Small messages cross tasks by the thousand: an allocator made for that is a quarter of the
/// processor time of an operation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The supervisor of granted programs is this same binary, started anew: nothing else may
    // happen before, no thread and no descriptor of our own.
    if let Some(code) = harness_engine::native::process::supervisor_main() {
        return code;
    }
    let cli = Cli::parse();
    match run(cli.command.unwrap_or(Command::Serve(cli.serve))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Provider(ProviderCommand::Inspect { file, config }) => {
            provider::inspect(&file, config.config.as_deref())
        }
        Command::Token(command) => token::run(&command),
        Command::Config(ConfigCommand::Check { config }) => {
            provider::check(config.config.as_deref())
        }
    }
}
