//! Clients that leave, at every stage of a request, streamed or not: each time the slot is free for the next one and
//! nothing is left behind.
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::{FakeLlama, Router};

use crate::{CHAT, one_slot, quick, taken};

/// Where a client is when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    HeadersSent,
    BodyHalfSent,
    Waiting,
    ShownLife,
    OnItsWay,
    Prefill,
    MidStream,
    LastByte,
}

const STAGES: [Stage; 8] = [
    Stage::HeadersSent,
    Stage::BodyHalfSent,
    Stage::Waiting,
    Stage::ShownLife,
    Stage::OnItsWay,
    Stage::Prefill,
    Stage::MidStream,
    Stage::LastByte,
];

fn prompt(stage: Stage, name: &str) -> String {
    match stage {
        Stage::OnItsWay => format!("LATE:{name} a b"),
        Stage::Prefill | Stage::ShownLife => format!("HOLD:{name} a b"),
        Stage::MidStream => format!("HOLDEND:{name} a b"),
        _ => "a b".to_owned(),
    }
}

/// Goes as far as `stage` and leaves.
async fn leave_at(stage: Stage, streamed: bool, fake: &FakeLlama, router: &Router, name: &str) {
    let before = fake.received().len();
    let text = prompt(stage, name);
    let body = format!(
        r#"{{"agent_session_id":"{name}","stream":{streamed},"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut connection = RawConnection::open(&router.url()).await;
    connection.send(head).await;
    if stage == Stage::HeadersSent {
        return;
    }
    if stage == Stage::BodyHalfSent {
        return connection.send(&body[..body.len() / 2]).await;
    }
    connection.send(body).await;
    match stage {
        Stage::Waiting => router.wait_waiting(1).await,
        Stage::ShownLife => drop(connection.read_until(": waiting\n\n").await),
        Stage::OnItsWay => fake.wait_received(before + 1).await,
        Stage::Prefill => fake.wait_processing(1).await,
        Stage::MidStream => drop(connection.read_until("out0").await),
        // The last chunk, or the end of the JSON.
        _ => drop(connection.read_until(if streamed { "[DONE]\n\n" } else { "}}" }).await),
    }
}

#[tokio::test]
async fn whenever_a_client_leaves_its_slot_is_free_for_the_next_and_nothing_is_left_behind() {
    for streamed in [true, false] {
        for stage in STAGES {
            // Without a stream nothing comes before the whole answer.
            if !streamed && matches!(stage, Stage::ShownLife | Stage::MidStream) {
                continue;
            }
            let fake = one_slot();
            let router = quick(&fake).start().await;
            let first =
                if stage == Stage::Waiting { Some(taken(&fake, &router, "first").await) } else { None };
            leave_at(stage, streamed, &fake, &router, "leaver").await;
            if let Some(first) = first {
                router.wait_status("nobody waits", |status| status["server"]["waiting"] == 0).await;
                fake.release("first");
                first.await.expect("answered");
            }
            if stage == Stage::OnItsWay {
                fake.release("leaver");
            }
            let next = client::chat(&router.url(), "next", "c d e").await;
            assert_eq!(next.status, 200, "{stage:?} {streamed}");
            router.wait_quiet().await;
            fake.assert_clean();
        }
    }
}
