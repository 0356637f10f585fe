//! What is wrong with a configuration: one message and one remedy a problem, with its line.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Line in the file, from 1; `None` when it is about the file as a whole.
    line: Option<usize>,
    /// What is wrong, with the name of the key or thing.
    message: String,
    /// What to do about it.
    remedy: String,
}

impl Problem {
    /// A problem at a line.
    pub(crate) fn new(
        line: Option<usize>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            line,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) struct ConfigError {
    /// The file, as the operator named it; empty when there is none.
    file: String,
    problems: Vec<Problem>,
}

impl ConfigError {
    /// Those problems of that file, in the order of their lines.
    pub(crate) fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        Self {
            file: file.to_owned(),
            problems,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match (self.file.as_str(), problem.line) {
                ("", _) => {}
                (file, None) => write!(f, "{file}: ")?,
                (file, Some(line)) => write!(f, "{file}:{line}: ")?,
            }
            write!(f, "{}\n    remedy: {}", problem.message, problem.remedy)?;
        }
        Ok(())
    }
}
