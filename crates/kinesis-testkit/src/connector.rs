//! The in-process front: an HTTP client for the SDK that calls the service without a socket.

use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;

use crate::service::Service;
use crate::wire::{self, ReplyBody, WireRequest};

/// Makes connectors to the service, which obey the SDK's read timeout.
#[derive(Debug, Clone)]
pub(crate) struct InProcess(pub(crate) Arc<Service>);

impl HttpClient for InProcess {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Connector { service: Arc::clone(&self.0), settings: settings.clone() })
    }
}

#[derive(Debug)]
struct Connector {
    service: Arc<Service>,
    settings: HttpConnectorSettings,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let service = Arc::clone(&self.service);
        let read_timeout = self.settings.read_timeout();
        HttpConnectorFuture::new(async move {
            let Some(limit) = read_timeout else { return respond(&service, request).await };
            match tokio::time::timeout(limit, respond(&service, request)).await {
                Ok(response) => response,
                Err(elapsed) => Err(ConnectorError::timeout(elapsed.into())),
            }
        })
    }
}

async fn respond(service: &Arc<Service>, mut request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
    let body = request.take_body();
    let collected;
    let bytes = match body.bytes() {
        Some(bytes) => bytes,
        None => {
            let bytes = ByteStream::new(body).collect().await;
            collected = bytes.map_err(|error| ConnectorError::user(error.into()))?.into_bytes();
            &collected[..]
        }
    };
    let headers = request.headers();
    let wire_request = WireRequest {
        method: request.method(),
        path: path_of(request.uri()),
        target: headers.get("x-amz-target"),
        content_type: headers.get("content-type"),
        body: bytes,
    };
    let reply = wire::answer(service, wire_request).await;
    let reply = reply.map_err(|withheld| ConnectorError::io(withheld.into()))?;
    let status =
        StatusCode::try_from(reply.status).map_err(|error| ConnectorError::other(error.into(), None))?;
    let body = match reply.body {
        ReplyBody::Whole(bytes) => SdkBody::from(bytes),
        ReplyBody::Stream(stream) => SdkBody::from_body_1_x(stream),
    };
    let mut response = HttpResponse::new(status, body);
    for (name, value) in reply.headers {
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// The path of a URI, without the query.
fn path_of(uri: &str) -> &str {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |start| &rest[start..]);
    path.split('?').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_uri_is_found() {
        for (uri, path) in [
            ("http://localhost:1/a/b?c=/d", "/a/b"),
            ("https://host", "/"),
            ("/service/x", "/service/x"),
            ("", "/"),
        ] {
            assert_eq!(path_of(uri), path);
        }
    }
}
