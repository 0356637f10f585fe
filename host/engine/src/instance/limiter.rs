//! Memory and tables of a store, summed over all its core instances.
//!
//! wasmtime's own limiter bounds each memory by itself; a component may hold many.

use wasmtime::ResourceLimiter;

/// Bytes a table element is counted as.
pub(crate) const ELEMENT: usize = 2 * size_of::<usize>();

/// See the module.
#[derive(Debug)]
pub(crate) struct StoreLimiter {
    used: usize,
    limit: usize,
    last: usize,
}

impl StoreLimiter {
    /// `limit`: bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            used: 0,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            last: 0,
        }
    }

    fn grow(&mut self, bytes: usize) -> bool {
        self.last = 0;
        match self.used.checked_add(bytes) {
            Some(used) if used <= self.limit => {
                self.used = used;
                self.last = bytes;
                true
            }
            _ => false,
        }
    }

    fn undo(&mut self) {
        self.used -= std::mem::take(&mut self.last).min(self.used);
    }
}

impl ResourceLimiter for StoreLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current)))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current).saturating_mul(ELEMENT)))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }

    fn instances(&self) -> usize {
        256
    }

    fn tables(&self) -> usize {
        256
    }

    fn memories(&self) -> usize {
        64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_budget() {
        let mut limiter = StoreLimiter::new(1000 + 10 * ELEMENT as u64);
        assert!(limiter.memory_growing(0, 600, None).unwrap());
        assert!(limiter.memory_growing(0, 400, None).unwrap());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(!limiter.table_growing(10, 11, None).unwrap());
        assert!(!limiter.memory_growing(600, 601, None).unwrap());
    }

    #[test]
    fn a_growth_that_failed_is_not_counted() {
        let mut limiter = StoreLimiter::new(100);
        assert!(limiter.memory_growing(0, 100, Some(50)).unwrap());
        limiter
            .memory_grow_failed(wasmtime::Error::msg("too large"))
            .unwrap();
        assert!(limiter.memory_growing(0, 100, None).unwrap());
    }
}
