//! The two doors to the service: the in-process connector and a socket.

use std::net::SocketAddr;

use aws_smithy_runtime_api::client::http::{HttpConnector as _, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kinesis_testkit::{Rule, Server, TestClock, TestKinesis};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

#[path = "../../tests/support/in_process.rs"]
mod in_process;

use in_process::connector;

/// A service with a stream `s` of one shard, and a server for it on a thread of its own.
pub(crate) struct Service {
    pub(crate) kinesis: TestKinesis,
    server: Server,
    /// Runs the server. Dropped last.
    _runtime: Runtime,
}

impl Service {
    pub(crate) fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (kinesis, server) = runtime.block_on(async {
            let kinesis = TestKinesis::builder()
                .clock(TestClock::system())
                .without_throughput_limits()
                .without(Rule::IteratorLife)
                .without(Rule::SubscribeInUse)
                .without(Rule::SubscribeCallRate)
                .build();
            let server = kinesis.serve(([127, 0, 0, 1], 0)).await.unwrap();
            (kinesis, server)
        });
        kinesis.create_stream("s", 1).unwrap();
        Self { kinesis, server, _runtime: runtime }
    }
}

/// A way to call the service, with the runtime of the caller.
pub(crate) struct Door {
    runtime: Runtime,
    way: Way,
}

enum Way {
    InProcess(SharedHttpConnector),
    Http(SocketAddr, SendRequest<Full<Bytes>>),
}

impl Door {
    pub(crate) fn open(service: &Service, http: bool) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let addr = service.server.addr();
        let way = if http {
            Way::Http(addr, runtime.block_on(connect(addr)))
        } else {
            Way::InProcess(runtime.block_on(connector(&service.kinesis)))
        };
        Self { runtime, way }
    }

    /// The whole reply to a call.
    pub(crate) fn call(&mut self, operation: &str, format: &str, body: Vec<u8>) -> Vec<u8> {
        let Self { runtime, way } = self;
        runtime.block_on(async {
            match way {
                Way::InProcess(connector) => whole(ask(connector, operation, format, body).await).await,
                Way::Http(_, sender) => whole(over_http(sender, operation, format, body).await).await,
            }
        })
    }

    /// Reads the reply to a call until it ends or so many bytes have come; how many have.
    pub(crate) fn read(&mut self, operation: &str, format: &str, body: Vec<u8>, wanted: usize) -> usize {
        let Self { runtime, way } = self;
        runtime.block_on(async {
            match way {
                Way::InProcess(connector) => {
                    count(ask(connector, operation, format, body).await, wanted).await
                }
                Way::Http(addr, sender) => {
                    let read = count(over_http(sender, operation, format, body).await, wanted).await;
                    if wanted != usize::MAX {
                        // The reply goes on, so its connection is lost.
                        *sender = connect(*addr).await;
                    }
                    read
                }
            }
        })
    }

    /// The bytes of an event stream up to its `records`-th record.
    pub(crate) fn replay_length(
        &mut self,
        service: &Service,
        format: &str,
        body: Vec<u8>,
        records: usize,
    ) -> usize {
        let in_process = Self::open(service, false);
        let Way::InProcess(connector) = &in_process.way else { unreachable!("it was just opened") };
        in_process.runtime.block_on(async {
            let mut reply = in_process_reply(connector, format, body).await;
            let mut length = 0;
            while service.kinesis.subscriptions("s").unwrap()[0].records < records as u64 {
                length += reply.frame().await.unwrap().unwrap().into_data().unwrap().len();
            }
            length
        })
    }
}

async fn in_process_reply(connector: &SharedHttpConnector, format: &str, body: Vec<u8>) -> SdkBody {
    ask(connector, "SubscribeToShard", format, body).await
}

async fn ask(connector: &SharedHttpConnector, operation: &str, format: &str, body: Vec<u8>) -> SdkBody {
    let mut request = HttpRequest::new(SdkBody::from(body));
    request.set_method("POST").unwrap();
    request.set_uri("http://localhost/").unwrap();
    request.headers_mut().insert("x-amz-target", format!("Kinesis_20131202.{operation}"));
    request.headers_mut().insert("content-type", format.to_owned());
    let reply = connector.call(request).await.unwrap();
    assert_eq!(reply.status().as_u16(), 200);
    reply.into_body()
}

async fn connect(addr: SocketAddr) -> SendRequest<Full<Bytes>> {
    let socket = TcpStream::connect(addr).await.unwrap();
    let (sender, connection) = handshake(TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn over_http(
    sender: &mut SendRequest<Full<Bytes>>,
    operation: &str,
    format: &str,
    body: Vec<u8>,
) -> hyper::body::Incoming {
    let request = Request::post("http://localhost/")
        .header("x-amz-target", format!("Kinesis_20131202.{operation}"))
        .header("content-type", format)
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    sender.ready().await.unwrap();
    let reply = sender.send_request(request).await.unwrap();
    assert_eq!(reply.status(), 200);
    reply.into_body()
}

async fn whole<B: Body<Error: std::fmt::Debug>>(body: B) -> Vec<u8> {
    body.collect().await.unwrap().to_bytes().to_vec()
}

async fn count<B: Body<Data = Bytes, Error: std::fmt::Debug> + Unpin>(mut body: B, wanted: usize) -> usize {
    let mut read = 0;
    while read < wanted {
        let Some(frame) = body.frame().await else { break };
        read += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    read
}
