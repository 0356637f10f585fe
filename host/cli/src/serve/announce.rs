//! What a person, or the program that started the host, needs to know once it is ready.
//!
//! It goes to standard output; logs go to standard error. A token that was just made is shown here
//! and nowhere else.

use crate::args::LogFormat;
use crate::text::printable_line;
use harness_core::admin::ProviderReport;
use harness_core::provider::ProviderState;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// The facts of a ready host.
#[derive(Debug, Serialize)]
pub(crate) struct Announcement<'a> {
    event: &'static str,
    version: &'static str,
    /// Base URL.
    pub(crate) url: &'a str,
    /// Process id.
    pub(crate) pid: u32,
    /// Data directory.
    pub(crate) data_dir: &'a Path,
    /// The admin token, when this start created one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<&'a str>,
    /// Installed providers, by id.
    pub(crate) providers: &'a [ProviderReport],
}

impl<'a> Announcement<'a> {
    /// Of this process and build.
    pub(crate) fn new(
        url: &'a str,
        data_dir: &'a Path,
        token: Option<&'a str>,
        providers: &'a [ProviderReport],
    ) -> Self {
        Self {
            event: "ready",
            version: env!("CARGO_PKG_VERSION"),
            url,
            pid: std::process::id(),
            data_dir,
            token,
            providers,
        }
    }

    /// Writes it to standard output.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn print(&self, format: LogFormat) -> std::io::Result<()> {
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        match format {
            LogFormat::Text => write!(out, "{self}")?,
            LogFormat::Json => {
                serde_json::to_writer(&mut out, self)?;
                out.write_all(b"\n")?;
            }
        }
        out.flush()
    }
}

impl fmt::Display for Announcement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Harness Host {} is ready", self.version)?;
        writeln!(f, "  API        {}/v1", self.url)?;
        writeln!(f, "  Reference  {}/docs", self.url)?;
        writeln!(f, "  Data       {}", self.data_dir.display())?;
        if let Some(token) = self.token {
            writeln!(f, "  Token      {token}   (admin; shown this once)")?;
        }
        for provider in self.providers {
            let state = state_word(provider.state);
            let load = provider
                .load_ms
                .map_or_else(String::new, |ms| format!(" in {ms} ms"));
            let cached = if provider.cached {
                ", from the cache"
            } else {
                ""
            };
            write!(
                f,
                "  Provider   {}: {state}{load}{cached} ({})",
                provider.id,
                printable_line(&provider.component)
            )?;
            match &provider.reason {
                Some(reason) => writeln!(f, "\n             {}", printable_line(reason))?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

fn state_word(state: ProviderState) -> &'static str {
    match state {
        ProviderState::Loading => "loading",
        ProviderState::Ready => "ready",
        ProviderState::Incompatible => "incompatible",
        ProviderState::Failed => "failed",
        ProviderState::Quarantined => "quarantined",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: ProviderState, reason: Option<&str>) -> ProviderReport {
        ProviderReport {
            id: "demo/planner".parse().unwrap(),
            label: None,
            version: None,
            state,
            reason: reason.map(str::to_owned),
            component: "embedded".into(),
            sha256: String::new(),
            contract: None,
            grants: vec![],
            limits: vec![],
            load_ms: Some(112),
            cached: true,
            instances: 0,
            restarts: 0,
            recent_failures: 0,
            last_failure: None,
        }
    }

    #[test]
    fn a_person_reads_where_it_is_and_what_it_serves() {
        let providers = [
            report(ProviderState::Ready, None),
            report(ProviderState::Failed, Some("no\u{1b}[2J agent")),
        ];
        let text = Announcement::new(
            "http://127.0.0.1:7717",
            Path::new("/data"),
            Some("hh_x"),
            &providers,
        )
        .to_string();
        for part in [
            "http://127.0.0.1:7717/v1",
            "/docs",
            "/data",
            "hh_x",
            "ready in 112 ms, from the cache",
            "failed",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(
            !Announcement::new("http://h", Path::new("/d"), None, &[])
                .to_string()
                .contains("Token")
        );
    }

    #[test]
    fn a_program_reads_the_same_as_one_object() {
        let providers = [report(ProviderState::Ready, None)];
        let json = serde_json::to_value(Announcement::new(
            "http://h:1",
            Path::new("/d"),
            None,
            &providers,
        ))
        .unwrap();
        assert_eq!(json["event"], "ready");
        assert_eq!(json["url"], "http://h:1");
        assert_eq!(json["data_dir"], "/d");
        assert_eq!(json["providers"][0]["id"], "demo/planner");
        assert_eq!(json["providers"][0]["state"], "ready");
        assert_eq!(json["providers"][0]["load_ms"], 112);
        assert!(json.get("token").is_none());
    }
}
