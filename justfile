# Every routine by name. `just` without a name lists them.

guests := "guest-sdk example-providers/hello example-providers/planner example-providers/acp"

_default:
    @just --list

# Serve the embedded demo provider (add flags: `just run --listen 127.0.0.1:8080`)
run *flags:
    cargo run --release -p harness -- {{flags}}

# All tests: the host's, then the guests' own
test:
    cargo test --workspace
    cargo test -p harness-simulation --features planted-faults --test planted
    for guest in {{guests}}; do cargo test --manifest-path $guest/Cargo.toml || exit 1; done

# What CI holds against a change before it runs the tests
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    for guest in {{guests}}; do cargo fmt --manifest-path $guest/Cargo.toml --check || exit 1; done
    for guest in {{guests}}; do cargo clippy --manifest-path $guest/Cargo.toml --all-targets -- -D warnings || exit 1; done

# The session layer over a simulated store, clock and providers: until a rule is broken, or `--seeds N`
simulate *flags:
    cargo run --release -p harness-simulation -- {{flags}}

# The benchmarks, as ratios against floors measured in the same run
bench:
    cargo run --release -p harness-bench

# Licences, bans and sources, and the advisory database (needs network)
audit:
    cargo deny check bans licenses sources advisories

# API documentation of every crate, warnings refused
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
