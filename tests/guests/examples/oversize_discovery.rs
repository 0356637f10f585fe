//! Answers discovery with more than is allowed. The setting `case` chooses:
//! `total` (default, more than 4 MiB in legal pieces), `commands`, `modes`,
//! `actions`, `reserved`, `name`, `text`, `description`, `empty` or `twice`.
use guests::*;

struct It;

fn mode(id: &str, description: String) -> Mode {
    Mode {
        id: id.to_owned(),
        label: "Mode".to_owned(),
        description,
        state: "on".to_owned(),
        tag_text: None,
        indicator: None,
        actions: Vec::new(),
        close_action_id: None,
        confirmation: None,
    }
}

impl Guest for It {
    const NAME: &'static str = "oversize-discovery";

    async fn get_command_state(_: Discovery) -> Result<Option<CommandState>, Error> {
        let case = harness_guest::config_value("case").unwrap_or_default();
        let mut state = command_state();
        let sample = state.commands.remove(0);
        let command = |name: String| Command {
            name,
            ..sample.clone()
        };
        match case.as_str() {
            "commands" => state.commands = (0..257).map(|n| command(format!("/c{n}"))).collect(),
            "modes" => {
                state.modes = (0..65)
                    .map(|n| mode(&n.to_string(), String::new()))
                    .collect()
            }
            "actions" => {
                let mut mode = mode("m", String::new());
                mode.actions = (0..65)
                    .map(|n| ModeAction {
                        id: n.to_string(),
                        label: "Action".to_owned(),
                        icon: None,
                        argument: None,
                    })
                    .collect();
                state.modes.push(mode);
            }
            "reserved" => state.commands.push(Command {
                composer: Some(ComposerTag {
                    label: "Tag".to_owned(),
                    mode_id: None,
                    reserved_arguments: (0..65).map(|n| n.to_string()).collect(),
                }),
                ..command("/r".to_owned())
            }),
            "name" => state
                .commands
                .push(command(format!("/{}", "n".repeat(128)))),
            "text" => state.commands.push(Command {
                description: "t".repeat(4_097),
                ..command("/t".to_owned())
            }),
            "description" => state.modes.push(mode("m", "d".repeat((256 << 10) + 1))),
            "empty" => state.commands.push(command("/".to_owned())),
            "twice" => state.commands = vec![command("/c".to_owned()), command("/c".to_owned())],
            _ => {
                let modes = (0..64).map(|n| mode(&n.to_string(), "d".repeat(256 << 10)));
                state.modes = modes.collect();
            }
        }
        Ok(Some(state))
    }
}

guests::export!(It);
