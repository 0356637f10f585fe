//! `http`: requests to granted origins.

use super::abort::AbortHandle;
use super::process::belongs_to;
use super::stream::readers;
use crate::bindings::harness::provider::http::{Host, HostWithStore, HttpRequest, HttpResponse};
use crate::bindings::harness::provider::types as wit;
use crate::convert;
use crate::instance::ctx::{Ctx, HasCtx};
use crate::native::{IoError, http as native};
use bytes::Bytes;
use std::time::Duration;
use wasmtime::Result;
use wasmtime::component::{Accessor, Resource};

impl Host for Ctx {}

impl<T: Send + 'static> HostWithStore<T> for HasCtx {
    async fn fetch(
        accessor: &Accessor<T, Self>,
        request: HttpRequest,
        abort: Option<Resource<AbortHandle>>,
    ) -> Result<std::result::Result<HttpResponse, wit::IoError>> {
        let abort = belongs_to(accessor, abort.as_ref())?;
        let http = accessor.with(|mut a| a.get().native.http.clone());
        let request = native::HttpRequest {
            method: request.method,
            url: request.url,
            headers: request.headers,
            body: Bytes::from(request.body),
            timeout: request
                .timeout_ms
                .map(|ms| Duration::from_millis(ms.into())),
        };
        let answered = async {
            let http = http.ok_or_else(|| {
                IoError::Denied("no origin is granted to this provider".to_owned())
            })?;
            http.fetch(request, abort).await
        };
        match answered.await {
            Ok(response) => {
                let native::HttpResponse {
                    status,
                    headers,
                    body,
                    done,
                } = response;
                let (body, done) = accessor.with(|access| readers(access, body, done))?;
                Ok(Ok(HttpResponse {
                    status,
                    headers,
                    body,
                    done,
                }))
            }
            Err(error) => Ok(Err(convert::io_error(error))),
        }
    }
}
