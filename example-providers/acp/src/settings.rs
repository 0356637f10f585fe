//! The operator's settings for one agent.

/// Resolved and within bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) label: String,
    pub(crate) auth_method: Option<String>,
    pub(crate) on_lost_session: LostSession,
    pub(crate) line_bytes: usize,
    pub(crate) linger_ms: u32,
    pub(crate) quiet_ms: u32,
    pub(crate) cancel_grace_ms: u32,
    pub(crate) handshake_ms: u32,
}

/// What happens when the agent cannot take up its conversation again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostSession {
    /// A new native conversation, and a notice in the old one.
    New,
    /// The prompt fails.
    Fail,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            label: "ACP agent".to_owned(),
            auth_method: None,
            on_lost_session: LostSession::New,
            line_bytes: 8 * 1024 * 1024,
            linger_ms: 100,
            quiet_ms: 1_500,
            cancel_grace_ms: 3_500,
            handshake_ms: 30_000,
        }
    }
}

impl Settings {
    /// Reads settings; each problem names the key, the value and what is allowed.
    pub(crate) fn read(config: &[(String, String)]) -> (Self, Vec<String>) {
        let mut settings = Self::default();
        let mut problems = Vec::new();
        for (key, value) in config {
            let result = match key.as_str() {
                "label" if value.is_empty() || value.len() > 128 => {
                    Err("1 to 128 bytes".to_owned())
                }
                "label" => {
                    settings.label.clone_from(value);
                    Ok(())
                }
                "auth_method" => {
                    settings.auth_method = Some(value.clone());
                    Ok(())
                }
                "on_lost_session" => match value.as_str() {
                    "new" => {
                        settings.on_lost_session = LostSession::New;
                        Ok(())
                    }
                    "fail" => {
                        settings.on_lost_session = LostSession::Fail;
                        Ok(())
                    }
                    _ => Err("\"new\" or \"fail\"".to_owned()),
                },
                "line_bytes" => number(value, 65_536, 67_108_864).map(|n| {
                    settings.line_bytes = usize::try_from(n).unwrap_or(settings.line_bytes);
                }),
                "linger_ms" => number(value, 0, 10_000).map(|n| settings.linger_ms = n),
                "quiet_ms" => number(value, 100, 60_000).map(|n| settings.quiet_ms = n),
                "cancel_grace_ms" => {
                    number(value, 100, 4_000).map(|n| settings.cancel_grace_ms = n)
                }
                "handshake_ms" => number(value, 1_000, 110_000).map(|n| settings.handshake_ms = n),
                _ => Err("no such setting".to_owned()),
            };
            if let Err(allowed) = result {
                problems.push(format!("{key} = {value:?}: {allowed}"));
            }
        }
        (settings, problems)
    }
}

fn number(value: &str, low: u32, high: u32) -> Result<u32, String> {
    value
        .parse()
        .ok()
        .filter(|number| (low..=high).contains(number))
        .ok_or_else(|| format!("a whole number from {low} to {high}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let config: Vec<_> = config
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Settings::read(&config)
    }

    #[test]
    fn reads_every_setting() {
        let (settings, problems) = read(&[
            ("label", "Mine"),
            ("auth_method", "key"),
            ("on_lost_session", "fail"),
            ("line_bytes", "65536"),
            ("linger_ms", "0"),
            ("quiet_ms", "200"),
            ("cancel_grace_ms", "1000"),
            ("handshake_ms", "2000"),
        ]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(
            settings,
            Settings {
                label: "Mine".to_owned(),
                auth_method: Some("key".to_owned()),
                on_lost_session: LostSession::Fail,
                line_bytes: 65_536,
                linger_ms: 0,
                quiet_ms: 200,
                cancel_grace_ms: 1_000,
                handshake_ms: 2_000,
            }
        );
    }

    #[test]
    fn bad_settings_are_named_and_change_nothing() {
        let (settings, problems) = read(&[
            ("label", ""),
            ("on_lost_session", "maybe"),
            ("line_bytes", "1"),
            ("quiet_ms", "-1"),
            ("qiet_ms", "100"),
        ]);
        assert_eq!(settings, Settings::default());
        assert_eq!(problems.len(), 5);
        assert!(
            problems
                .iter()
                .any(|p| p.contains("qiet_ms") && p.contains("no such"))
        );
    }
}
