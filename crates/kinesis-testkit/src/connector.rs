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
use crate::wire;

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

async fn respond(service: &Service, mut request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
    let body = request.take_body();
    let target = request.headers().get("x-amz-target").map(str::to_owned);
    let content_type = request.headers().get("content-type").map(str::to_owned);
    let reply = match body.bytes() {
        Some(bytes) => wire::answer(service, target.as_deref(), content_type.as_deref(), bytes).await,
        None => {
            let bytes = ByteStream::new(body).collect().await;
            let bytes = bytes.map_err(|error| ConnectorError::user(error.into()))?.into_bytes();
            wire::answer(service, target.as_deref(), content_type.as_deref(), &bytes).await
        }
    };
    let Some(reply) = reply else {
        return Err(ConnectorError::io("the connection closed before the reply".into()));
    };
    let status =
        StatusCode::try_from(reply.status).map_err(|error| ConnectorError::other(error.into(), None))?;
    let mut response = HttpResponse::new(status, SdkBody::from(reply.body));
    for (name, value) in reply.headers {
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}
