//! The names a component imports and exports and the memory it starts with, read without compiling
//! it.

use super::LoadError;
use super::memory::Needs;
use wasmparser::{Encoding, Parser, Payload};

/// Most imports and exports read.
const MAX_NAMES: usize = 1000;

/// See the module.
pub(super) struct Surface {
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
    /// Bytes of memory and tables that one instance begins with.
    pub(super) memory: u64,
}

/// Reads the outermost component.
pub(super) fn read(bytes: &[u8]) -> Result<Surface, LoadError> {
    if bytes.starts_with(b"\x7fELF") {
        return Err(LoadError::Precompiled);
    }
    if !bytes.starts_with(b"\0asm") {
        let found = match bytes.get(..8.min(bytes.len())).unwrap_or_default() {
            [] => "nothing (the file is empty)".to_owned(),
            start => format!("`{}`", start.escape_ascii()),
        };
        return Err(LoadError::NotWasm { found });
    }
    let mut surface = Surface {
        imports: Vec::new(),
        exports: Vec::new(),
        memory: 0,
    };
    let mut depth = 0usize;
    let mut needs = Needs::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| broken(&error, bytes.len()))?;
        needs
            .feed(&payload)
            .map_err(|error| broken(&error, bytes.len()))?;
        match payload {
            Payload::Version {
                encoding: Encoding::Module,
                ..
            } if depth == 0 => return Err(LoadError::CoreModule),
            Payload::UnknownSection { id, range, .. } => {
                let at = range.start;
                return Err(LoadError::Malformed(format!(
                    "unknown section {id} (at byte {at})"
                )));
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let import = import.map_err(|error| broken(&error, bytes.len()))?;
                    push(&mut surface.imports, import.name.name)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    let export = export.map_err(|error| broken(&error, bytes.len()))?;
                    push(&mut surface.exports, export.name.name)?;
                }
            }
            _ => {}
        }
    }
    surface.memory = needs.total();
    Ok(surface)
}

fn push(names: &mut Vec<String>, name: &str) -> Result<(), LoadError> {
    if names.len() >= MAX_NAMES {
        return Err(LoadError::Malformed(format!(
            "it has more than {MAX_NAMES} imports or exports"
        )));
    }
    names.push(name.to_owned());
    Ok(())
}

fn broken(error: &wasmparser::BinaryReaderError, len: usize) -> LoadError {
    let message = error.message();
    if message.contains("unexpected end") {
        LoadError::Truncated { at: len }
    } else {
        LoadError::Malformed(format!("{message} (at byte {})", error.offset()))
    }
}
