//! The components of the test guests and example providers, as paths.
//!
//! Add it as a dev-dependency. The first build of this crate builds the guests; a
//! later one only when their sources, the SDK or the contract changed.
//!
//! A module that tests the hostile guests proves that it tests all of them:
//!
//! ```text
//! use harness_test_guests::{assert_test_exists, foreach_hostile_guest};
//! foreach_hostile_guest!(assert_test_exists);
//!
//! #[test]
//! fn spin_in_call() { … }
//! ```
//!
//! A hostile guest without a function of its name in that module is a compile
//! error.

include!(concat!(env!("OUT_DIR"), "/guests.rs"));

/// Fails the build unless a function of this name is in scope.
#[macro_export]
macro_rules! assert_test_exists {
    ($name:ident) => {
        #[allow(unused_imports)]
        use self::$name as _;
    };
}
