//! Builds every test guest and example provider for `wasm32-wasip2` and writes a
//! path constant for each.
//!
//! The guests are built by a cargo of their own, in a target directory of their
//! own under the one that is in use (sharing it would deadlock on cargo's lock),
//! in release mode whatever the profile of the tests is. What no compiler makes is
//! made here: a core module, a truncated file, and components that misbehave while
//! they are instantiated.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const TARGET: &str = "wasm32-wasip2";

/// Where the guests are built, for several checkouts or target directories that
/// share one build. Default: `harness-guests` in the target directory in use.
const TARGET_DIR_VARIABLE: &str = "HARNESS_GUESTS_TARGET_DIR";

/// Well-behaved guests: tools of the tests, without a test of their own.
const TOOLS: &[&str] = &["probe", "stateful"];

/// Example providers that end-to-end tests load: directory and library.
const PROVIDERS: &[(&str, &str)] = &[
    ("acp", "acp_provider"),
    ("hello", "hello"),
    ("planner", "planner"),
];

fn main() -> Result<()> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let guests = here.join("..");
    let root = here.join("../../..");
    let target_dir = match env::var_os(TARGET_DIR_VARIABLE) {
        Some(directory) => PathBuf::from(directory),
        None => shared_target_dir(&out).join("harness-guests"),
    };
    ensure_target()?;

    let mut watched = vec![guests.join("src"), guests.join("examples")];
    watched.push(guests.join("Cargo.toml"));
    watched.push(root.join("guest-sdk/src"));
    watched.push(root.join("guest-sdk/wit"));
    watched.push(root.join("guest-sdk/Cargo.toml"));

    let built = target_dir.join(TARGET).join("release");
    build(&guests, &target_dir, &["--examples"])?;
    let mut components = Vec::new();
    for entry in fs::read_dir(guests.join("examples"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = stem(&path)?;
            let component = built.join("examples").join(format!("{name}.wasm"));
            if !component.is_file() {
                return Err(format!(
                    "tests/guests/examples/{name}.rs is not listed in tests/guests/Cargo.toml"
                )
                .into());
            }
            components.push((name, component));
        }
    }
    components.extend(made(&out, &components)?);
    components.sort();

    let mut providers = Vec::new();
    for (name, library) in PROVIDERS {
        let source = root.join("example-providers").join(name);
        build(&source, &target_dir, &["--lib"])?;
        watched.push(source.join("src"));
        watched.push(source.join("Cargo.toml"));
        providers.push((*name, built.join(format!("{library}.wasm"))));
    }

    fs::write(out.join("guests.rs"), constants(&components, &providers)?)?;
    for path in watched {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={TARGET_DIR_VARIABLE}");
    Ok(())
}

/// The outermost target directory, so that every profile and every hash of this
/// crate shares one build of the guests.
fn shared_target_dir(out: &Path) -> PathBuf {
    out.ancestors()
        .filter(|directory| directory.join("CACHEDIR.TAG").is_file())
        .last()
        .unwrap_or(out)
        .to_path_buf()
}

/// Adds the target to the toolchain when it is missing.
fn ensure_target() -> Result<()> {
    let rustc = env::var("RUSTC")?;
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()?;
    let libdir = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    if libdir.is_dir() {
        return Ok(());
    }
    let added = Command::new("rustup")
        .args(["target", "add", TARGET])
        .status();
    if added.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(format!("the target {TARGET} is missing; add it: rustup target add {TARGET}").into())
}

fn build(source: &Path, target_dir: &Path, what: &[&str]) -> Result<()> {
    let mut cargo = Command::new(env::var("CARGO")?);
    cargo
        .current_dir(source)
        .args(["build", "--release", "--quiet", "--target", TARGET])
        .args(what)
        .arg("--target-dir")
        .arg(target_dir);
    // What this build was told is not meant for the guests.
    for (name, _) in env::vars() {
        let inherited = name.starts_with("CARGO_CFG_")
            || name.starts_with("CARGO_FEATURE_")
            || name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_PROFILE_")
            || matches!(
                name.as_str(),
                "CARGO_ENCODED_RUSTFLAGS"
                    | "RUSTFLAGS"
                    | "CARGO_BUILD_TARGET"
                    | "CARGO_MANIFEST_DIR"
                    | "CARGO_TARGET_DIR"
                    | "RUSTC_WORKSPACE_WRAPPER"
                    | "RUSTC_WRAPPER"
                    | "TARGET"
                    | "HOST"
                    | "OUT_DIR"
                    | "PROFILE"
                    | "OPT_LEVEL"
                    | "DEBUG"
            );
        if inherited {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("building {} for {TARGET} failed", source.display()).into());
    }
    Ok(())
}

fn stem(path: &Path) -> Result<String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    Ok(stem.ok_or("a guest's file name is not UTF-8")?.to_owned())
}

/// Files that no compiler makes.
fn made(out: &Path, components: &[(String, PathBuf)]) -> Result<Vec<(String, PathBuf)>> {
    let probe = components
        .iter()
        .find(|(name, _)| name == "stateful")
        .ok_or("the guest stateful is missing")?;
    let probe = fs::read(&probe.1)?;
    let half = probe.get(..probe.len() / 2).unwrap_or_default().to_vec();
    let well_behaved = components
        .iter()
        .find(|(name, _)| name == "trap_compact")
        .ok_or("the guest trap_compact is missing")?;
    let well_behaved = fs::read(&well_behaved.1)?;
    let files = [
        ("core_module", core_module(&Start::Nothing)),
        ("truncated", half),
        (
            "spin_at_instantiation",
            graft(&well_behaved, &core_module(&Start::Spin))?,
        ),
        (
            "table_bomb",
            graft(&well_behaved, &core_module(&Start::GrowTable))?,
        ),
    ];
    let mut made = Vec::new();
    for (name, bytes) in files {
        let path = out.join(format!("{name}.wasm"));
        fs::write(&path, bytes)?;
        made.push((name.to_owned(), path));
    }
    Ok(made)
}

/// What a core module does while it is instantiated.
enum Start {
    Nothing,
    /// Loops for ever.
    Spin,
    /// Grows its table until that is refused, then traps.
    GrowTable,
}

fn core_module(start: &Start) -> Vec<u8> {
    use wasm_encoder::{
        BlockType, CodeSection, Function, FunctionSection, HeapType, Instruction, Module, RefType,
        StartSection, TableSection, TableType, TypeSection,
    };
    let mut module = Module::new();
    let mut types = TypeSection::new();
    types.ty().function([], []);
    module.section(&types);
    let mut functions = FunctionSection::new();
    functions.function(0);
    module.section(&functions);
    let mut tables = TableSection::new();
    // Without an initializer: that would need the function-references proposal, which is off.
    tables.table(TableType {
        element_type: RefType::FUNCREF,
        table64: false,
        minimum: 1,
        maximum: None,
        shared: false,
    });
    module.section(&tables);
    module.section(&StartSection { function_index: 0 });
    let mut body = Function::new([]);
    match start {
        Start::Nothing => {}
        Start::Spin => {
            body.instruction(&Instruction::Loop(BlockType::Empty));
            body.instruction(&Instruction::Br(0));
            body.instruction(&Instruction::End);
        }
        Start::GrowTable => {
            body.instruction(&Instruction::Loop(BlockType::Empty));
            body.instruction(&Instruction::RefNull(HeapType::FUNC));
            body.instruction(&Instruction::I32Const(100_000));
            body.instruction(&Instruction::TableGrow(0));
            body.instruction(&Instruction::I32Const(-1));
            body.instruction(&Instruction::I32Ne);
            body.instruction(&Instruction::BrIf(0));
            body.instruction(&Instruction::End);
            body.instruction(&Instruction::Unreachable);
        }
    }
    body.instruction(&Instruction::End);
    let mut code = CodeSection::new();
    code.function(&body);
    module.section(&code);
    module.finish()
}

/// `component` with one more core module that is instantiated as its last step.
fn graft(component: &[u8], module: &[u8]) -> Result<Vec<u8>> {
    use wasm_encoder::{ComponentSection as _, InstanceSection, ModuleArg, RawSection};
    use wasmparser::{Parser, Payload};
    let mut depth = 0u32;
    let mut modules = 0u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::ModuleSection { .. } => {
                modules += u32::from(depth == 0);
                depth += 1;
            }
            Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let mut grafted = component.to_vec();
    // Section 1 of a component is a core module.
    RawSection {
        id: 1,
        data: module,
    }
    .append_to_component(&mut grafted);
    let mut instances = InstanceSection::new();
    let no_arguments: [(&str, ModuleArg); 0] = [];
    instances.instantiate(modules, no_arguments);
    instances.append_to_component(&mut grafted);
    Ok(grafted)
}

fn constants(guests: &[(String, PathBuf)], providers: &[(&str, PathBuf)]) -> Result<String> {
    let mut text = String::new();
    let mut hostile = String::new();
    for (name, path) in guests {
        let constant = name.to_uppercase();
        writeln!(text, "/// Path of the guest `{name}`.")?;
        writeln!(text, "pub const {constant}: &str = {path:?};")?;
        if !TOOLS.contains(&name.as_str()) {
            writeln!(hostile, "        $macro!({name});")?;
        }
    }
    for (name, path) in providers {
        let constant = name.to_uppercase();
        writeln!(text, "/// Path of the example provider `{name}`.")?;
        writeln!(text, "pub const PROVIDER_{constant}: &str = {path:?};")?;
    }
    writeln!(text, "/// Every guest by name, with its path.")?;
    writeln!(text, "pub const GUESTS: &[(&str, &str)] = &[")?;
    for (name, _) in guests {
        writeln!(text, "    ({name:?}, {}),", name.to_uppercase())?;
    }
    writeln!(text, "];")?;
    write!(
        text,
        "/// Calls a macro with the name of every hostile guest.\n\
         #[macro_export]\n\
         macro_rules! foreach_hostile_guest {{\n    ($macro:ident) => {{\n{hostile}    }};\n}}\n"
    )?;
    Ok(text)
}
