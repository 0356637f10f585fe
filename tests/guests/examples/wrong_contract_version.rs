//! Built against a contract of the future: `harness:provider@9.9.9`.
wit_bindgen::generate!({
    inline: r"
        package harness:provider@9.9.9;
        interface host { log: func(message: string); }
        interface provider { describe: func() -> string; }
        world harness-provider { import host; export provider; }
    ",
    world: "harness-provider",
});

struct It;

impl exports::harness::provider::provider::Guest for It {
    fn describe() -> String {
        harness::provider::host::log("from the future");
        "guest/wrong-contract-version".to_owned()
    }
}

export!(It);
