//! Method, target and headers on their way to the server.
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::{FakeLlama, Options, Outgoing, RawUpstream, Router};

use super::{arrived, head};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

#[tokio::test]
async fn every_method_arrives_as_it_was_sent_also_an_invented_one() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"];
    for method in methods {
        let answer = client::send(Outgoing::new(method, format!("{}/echo?cup=1", router.url()))).await;
        assert_eq!(answer.status, 200, "{method}");
    }
    let received = arrived(&fake);
    assert_eq!(received.iter().map(|one| one.method.as_str()).collect::<Vec<_>>(), methods);
    assert!(received.iter().all(|one| one.target == "/echo?cup=1"));
}

#[tokio::test]
async fn path_and_query_arrive_byte_for_byte() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let targets = [
        "/",
        "/echo?",
        "/echo?a=1&a=2&&b",
        "//double//slash/",
        "/a%2Fb%20c%00",
        "/100%25%zz",
        "/%F0%9F%A6%99?q=%FF%FE",
        "/a/../b/./c;p=1,2",
        "/q?x=a?b/c&y=+%20+",
        "/json?x={a:1}|^`",
        "/~user/(x)!$&'*@:",
    ];
    for target in targets {
        let request = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        let answer = RawConnection::exchange(&router.url(), request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
    }
    let lines: Vec<String> = upstream.seen().iter().map(|request| head(request)[0].clone()).collect();
    assert_eq!(lines, targets.map(|target| format!("GET {target} HTTP/1.1")));
}

#[tokio::test]
async fn an_absolute_target_becomes_a_path() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request =
        "GET http://localhost:1/echo?x=%2F HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n";
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(head(&upstream.first().await)[0], "GET /echo?x=%2F HTTP/1.1");
}

#[tokio::test]
async fn options_of_the_whole_server_are_asked_of_it() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request = "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(head(&upstream.first().await)[0], "OPTIONS * HTTP/1.1");
}

#[tokio::test]
async fn headers_arrive_less_those_of_the_connection_and_nothing_is_added() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request = "POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: pi/1\r\nAccept: a\r\nAccept: b\r\n\
        Cookie: x=1\r\nAuthorization: Bearer client\r\nX-Forwarded-For: 10.0.0.1\r\nX-Empty:\r\n\
        Connection: X-Private, close\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authorization: Basic x\r\n\
        Proxy-Connection: keep-alive\r\nTE: gzip\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi";
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut lines = head(&upstream.first().await);
    lines.sort();
    let mut expected = [
        "POST /echo HTTP/1.1",
        &format!("host: {}", upstream.url().trim_start_matches("http://")),
        "user-agent: pi/1",
        "accept: a",
        "accept: b",
        "cookie: x=1",
        "authorization: Bearer client",
        "x-forwarded-for: 10.0.0.1",
        "x-empty: ",
        "content-length: 2",
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn headers_of_a_routed_request_arrive_as_well() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let request = client::chat_request(&router.url(), "a", "hello").header("x-one", "1");
    let request = request.header("x-one", "2").header("connection", "x-private").header("x-private", "1");
    assert_eq!(client::send(request).await.status, 200);
    let received = fake.received();
    let values: Vec<_> = received[0].headers.get_all("x-one").iter().collect();
    assert_eq!(values, ["1", "2"]);
    assert_eq!(received[0].header("host"), Some(fake.address().to_string().as_str()));
    assert_eq!(received[0].header("x-private"), None);
}

#[tokio::test]
async fn a_header_value_that_is_no_text_arrives_unchanged() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request =
        b"GET /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Latin: gr\xfc\xdfe\r\nConnection: close\r\n\r\n";
    RawConnection::exchange(&router.url(), request).await;
    assert!(head(&upstream.first().await).contains(&"x-latin: gr\u{fc}\u{df}e".to_owned()));
}

#[tokio::test]
async fn a_v1_at_the_end_of_the_upstream_address_is_not_doubled() {
    let fake = FakeLlama::start(Options::default());
    for end in ["/v1", "/v1/", "/"] {
        let router = Router::in_front_of(&format!("{}{end}", fake.url())).start().await;
        assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 200, "{end}");
        assert_eq!(client::get(format!("{}/v1/models", router.url())).await.status, 200, "{end}");
    }
    let all = |target| arrived(&fake).iter().filter(|one| one.target == target).count();
    assert_eq!((all("/v1/chat/completions"), all("/v1/models")), (3, 3));
}

#[tokio::test]
async fn a_path_in_the_upstream_address_is_put_in_front() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&format!("{}/llama/v1", upstream.url())).start().await;
    assert_eq!(client::get(format!("{}/v1/models?x=1", router.url())).await.status, 200);
    // The router's own questions go there too, and this server keeps what it does not know.
    let lines: Vec<String> = upstream.seen().iter().map(|request| head(request)[0].clone()).collect();
    assert!(lines.contains(&"GET /llama/v1/models?x=1 HTTP/1.1".to_owned()), "{lines:?}");
}
