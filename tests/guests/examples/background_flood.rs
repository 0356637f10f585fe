//! Starts background programs until one is refused: on `/go`, and in every turn,
//! those that the ends of its programs start included. Further words of a control
//! or prompt misuse the interface in other ways.
use futures::future::join_all;
use guests::*;
use harness_guest::bindings::harness::provider::background;

struct It;

/// The program that the operator granted; it writes without end.
const PROGRAM: &str = "flood";

async fn start(program: &str, stdin: Vec<u8>) -> Result<String, IoError> {
    background::start(program.to_owned(), None, stdin).await
}

async fn misuse(text: &str) -> Result<String, Error> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match words.last().copied().unwrap_or_default() {
        "ungranted" => format!("{:?}", start("other", Vec::new()).await),
        "foreground" => format!("{:?}", start("foreground", Vec::new()).await),
        "stdin" => format!("{:?}", start(PROGRAM, vec![b'x'; (1 << 20) + 1]).await),
        "handle" => format!("{:?}", background::info("h".repeat(1 << 20)).await),
        "pending" => {
            let calls = (0..1_000).map(|_| background::processes());
            let refused = join_all(calls).await.into_iter();
            let refused = refused.filter(|call| matches!(call, Err(IoError::Limit(_))));
            format!("refused {}", refused.count())
        }
        "read" => read().await.unwrap_or_else(|error| format!("{error:?}")),
        "stop" => {
            let all = background::processes().await.unwrap_or_default();
            let mut stopped = 0;
            for process in all {
                stopped += u32::from(background::stop(process.handle).await.is_ok());
            }
            format!("stopped {stopped}")
        }
        _ => {
            let mut started = 0;
            let refusal = loop {
                match start(PROGRAM, Vec::new()).await {
                    Ok(_) => started += 1,
                    Err(error) => break error,
                }
            };
            format!("{started} {refusal:?}")
        }
    })
}

/// How much of what the first process wrote is kept, and how much it wrote.
async fn read() -> Result<String, IoError> {
    let all = background::processes().await?;
    let first = all.into_iter().next().ok_or(IoError::Closed)?;
    let (mut kept, mut offset) = (0, 0);
    // What is written meanwhile would make this endless.
    let end = first.written.unwrap_or_default();
    let mut oldest = None;
    while offset < end {
        let piece = background::read(first.handle.clone(), offset, u32::MAX).await?;
        oldest.get_or_insert(piece.offset);
        if piece.next <= offset {
            break;
        }
        kept += piece
            .chunks
            .iter()
            .map(|chunk| chunk.data.len())
            .sum::<usize>();
        offset = piece.next;
    }
    Ok(format!(
        "kept {kept} of {end} from {}",
        oldest.unwrap_or_default()
    ))
}

impl Guest for It {
    const NAME: &'static str = "background-flood";

    async fn invoke(prep: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        Ok(Answer::Completed(Some(misuse(&prep.text).await?)))
    }

    async fn done(session: Sess) -> Result<Outcome, Error> {
        let text = misuse(&session.text).await?;
        say(&session.channel, &text).await?;
        Ok(Outcome::default())
    }
}

guests::export!(It);
