//! Logs far more than is allowed, through the host and through its standard
//! output and error, then ends its turn normally.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "log-flood";

    async fn done(session: Sess) -> Result<Outcome, Error> {
        let line = "x".repeat(1_000);
        for round in 0..200 {
            for n in 0..50 {
                host::log(LogLevel::Info, &format!("{round}/{n} \u{1b}[31m{line}"));
                println!("{round}/{n} {line}");
                eprintln!("{round}/{n} {line}");
            }
            host::sleep_ms(1).await;
        }
        say(&session.channel, "flooded").await?;
        Ok(Outcome::default())
    }
}

guests::export!(It);
