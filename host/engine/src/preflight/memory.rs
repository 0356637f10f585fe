//! How much memory a component takes by being instantiated, read without compiling it.
//!
//! Counted as a store counts it: the first size of every memory and table, once for each core
//! instance that defines it. What comes from outside the component counts nothing, so this is never
//! more than what instantiation asks for.

use crate::instance::limiter::ELEMENT;
use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentInstance,
    ComponentOuterAliasKind, ComponentTypeRef, Encoding, Instance, Payload,
};

/// Bytes of a WebAssembly page, unless a memory says otherwise, as a power of two.
const PAGE: u32 = 16;

/// See the module. Fed every payload of a component in order.
#[derive(Default)]
pub(super) struct Needs {
    open: Vec<Frame>,
    total: u64,
}

enum Frame {
    /// Bytes of one instance of it.
    Module(u64),
    Component(Scope),
}

/// Index spaces of a component, as bytes of one instance of each item.
#[derive(Default)]
struct Scope {
    modules: Vec<u64>,
    components: Vec<u64>,
    need: u64,
}

fn at(items: &[u64], index: u32) -> u64 {
    usize::try_from(index)
        .ok()
        .and_then(|index| items.get(index))
        .copied()
        .unwrap_or(0)
}

impl Scope {
    fn add(&mut self, bytes: u64) {
        self.need = self.need.saturating_add(bytes);
    }
}

impl Needs {
    /// Bytes of an instance of the outermost component, once all was fed.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    fn module(&mut self, bytes: u64) {
        if let Some(Frame::Module(sum)) = self.open.last_mut() {
            *sum = sum.saturating_add(bytes);
        }
    }

    fn scope(&mut self) -> Option<&mut Scope> {
        match self.open.last_mut() {
            Some(Frame::Component(scope)) => Some(scope),
            _ => None,
        }
    }

    /// The component `count` levels out; 0 is the open one.
    fn outer(&self, count: u32) -> Option<&Scope> {
        let count = usize::try_from(count).ok()?;
        match self.open.iter().rev().nth(count)? {
            Frame::Component(scope) => Some(scope),
            Frame::Module(_) => None,
        }
    }

    fn end(&mut self) {
        let Some(ended) = self.open.pop() else {
            return;
        };
        match (ended, self.scope()) {
            (Frame::Module(bytes), Some(scope)) => scope.modules.push(bytes),
            (Frame::Component(inner), Some(scope)) => scope.components.push(inner.need),
            (Frame::Component(outermost), None) => self.total = outermost.need,
            (Frame::Module(_), None) => {}
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) {
        match *alias {
            ComponentAlias::Outer { kind, count, index } => {
                let module = self.outer(count).map_or(0, |s| at(&s.modules, index));
                let component = self.outer(count).map_or(0, |s| at(&s.components, index));
                let Some(scope) = self.scope() else { return };
                match kind {
                    ComponentOuterAliasKind::CoreModule => scope.modules.push(module),
                    ComponentOuterAliasKind::Component => scope.components.push(component),
                    _ => {}
                }
            }
            ComponentAlias::InstanceExport { kind, .. } => self.outside(kind),
            ComponentAlias::CoreInstanceExport { .. } => {}
        }
    }

    /// An item whose inside is not here.
    fn outside(&mut self, kind: ComponentExternalKind) {
        let Some(scope) = self.scope() else { return };
        match kind {
            ComponentExternalKind::Module => scope.modules.push(0),
            ComponentExternalKind::Component => scope.components.push(0),
            _ => {}
        }
    }

    /// Takes the next payload.
    ///
    /// # Errors
    /// A section is malformed.
    pub(super) fn feed(&mut self, payload: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::Version { encoding, .. } => self.open.push(match encoding {
                Encoding::Module => Frame::Module(0),
                Encoding::Component => Frame::Component(Scope::default()),
            }),
            Payload::End(_) => self.end(),
            Payload::MemorySection(section) => {
                for memory in section.clone() {
                    let memory = memory?;
                    let page = 1u64
                        .checked_shl(memory.page_size_log2.unwrap_or(PAGE))
                        .unwrap_or(0);
                    self.module(memory.initial.saturating_mul(page));
                }
            }
            Payload::TableSection(section) => {
                for table in section.clone() {
                    self.module(table?.ty.initial.saturating_mul(ELEMENT as u64));
                }
            }
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    if let (Instance::Instantiate { module_index, .. }, Some(scope)) =
                        (instance?, self.scope())
                    {
                        scope.add(at(&scope.modules, module_index));
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    if let (
                        ComponentInstance::Instantiate {
                            component_index, ..
                        },
                        Some(scope),
                    ) = (instance?, self.scope())
                    {
                        scope.add(at(&scope.components, component_index));
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    self.alias(&alias?);
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    match import?.ty {
                        ComponentTypeRef::Module(_) => self.outside(ComponentExternalKind::Module),
                        ComponentTypeRef::Component(_) => {
                            self.outside(ComponentExternalKind::Component);
                        }
                        _ => {}
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export?;
                    let Some(scope) = self.scope() else { continue };
                    // An export is a new index of the same item.
                    match export.kind {
                        ComponentExternalKind::Module => {
                            scope.modules.push(at(&scope.modules, export.index));
                        }
                        ComponentExternalKind::Component => {
                            scope.components.push(at(&scope.components, export.index));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
