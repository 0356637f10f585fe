//! The OpenAPI 3.1 document, generated from the types that requests are parsed with (G1), and the
//! pages that show it.
//!
//! Every operation gets here what all of them share: the security scheme and the problem document
//! as its answer to everything that is not a success.

use crate::code::Code;
use crate::problem::ProblemDocument;
use crate::router::documented;
use crate::state::ApiState;
use axum::Router;
use axum::routing::get;
use harness_core::event::EventBody;
use http::header::CONTENT_TYPE;
use std::fmt::Write;
use std::sync::LazyLock;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, OpenApi, PathItem, Ref, RefOr, ResponseBuilder, Schema,
};
use utoipa::{OpenApi as _, PartialSchema, ToSchema};
use utoipa_swagger_ui::{Config, SwaggerUi};

/// Name of the security scheme.
const TOKEN: &str = "token";

#[derive(utoipa::OpenApi)]
#[openapi(info(
    title = "Harness Host",
    description = "One HTTP API over AI-agent harnesses: discovery, prompts, native operations, approvals, questions and events.",
    license(name = "Apache-2.0", identifier = "Apache-2.0")
))]
struct Head;

/// What the routes' own documentation is added to.
pub(crate) fn head() -> OpenApi {
    Head::openapi()
}

/// The document as served at `/openapi.json`.
#[must_use]
pub fn document() -> OpenApi {
    let (_, mut document) = documented().split_for_parts();
    let components = document.components.get_or_insert_with(Components::new);
    let mut schemas = Vec::new();
    <ProblemDocument as ToSchema>::schemas(&mut schemas);
    components.schemas.extend(schemas);
    components.schemas.insert(
        ProblemDocument::name().into_owned(),
        ProblemDocument::schema(),
    );
    hide_internal(components);
    components
        .responses
        .insert("Problem".into(), RefOr::T(problem_response()));
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "A token with the scope of the route: `read`, `invoke` or `admin`. Scopes do not include each other.",
        ))
        .build();
    components
        .security_schemes
        .insert(TOKEN.into(), SecurityScheme::Http(bearer).into());
    for (path, item) in &mut document.paths.paths {
        let protected = path.starts_with("/v1/") || path == "/metrics";
        for operation in operations(item) {
            operation.responses.responses.insert(
                "default".into(),
                RefOr::Ref(Ref::from_response_name("Problem")),
            );
            if protected {
                operation.security =
                    Some(vec![SecurityRequirement::new(TOKEN, Vec::<String>::new())]);
            }
        }
    }
    document
}

/// Leaves out the events that no client sees.
fn hide_internal(components: &mut Components) {
    let events = components.schemas.get_mut(EventBody::name().as_ref());
    if let Some(RefOr::T(Schema::OneOf(events))) = events {
        events.items.retain(|event| {
            serde_json::to_string(event).is_ok_and(|text| !text.contains("\"GatePrepared\""))
        });
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut utoipa::openapi::path::Operation> {
    [
        &mut item.get,
        &mut item.post,
        &mut item.patch,
        &mut item.delete,
    ]
    .into_iter()
    .filter_map(Option::as_mut)
}

/// Documents every code in one place: which statuses a client has to expect is the same
/// everywhere, what it does about them depends on the code.
fn problem_response() -> utoipa::openapi::Response {
    let mut text = String::from(
        "A problem (RFC 9457). Codes:\n\n| code | status | meaning |\n|---|---|---|\n",
    );
    for code in Code::ALL {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} |",
            code.as_str(),
            code.status(),
            code.title()
        );
    }
    let example = serde_json::json!({
        "type": "urn:harness-host:problem:session_busy",
        "title": Code::SessionBusy.title(),
        "status": 409,
        "detail": "a turn is running; wait for it to end or stop it",
        "code": "session_busy",
        "retryable": true,
        "request_id": "01930f5e-7a2b-7c3d-8e4f-5a6b7c8d9e0f"
    });
    let content = ContentBuilder::new()
        .schema(Some(RefOr::Ref(Ref::from_schema_name(
            ProblemDocument::name(),
        ))))
        .example(Some(example))
        .build();
    ResponseBuilder::new()
        .description(text)
        .content("application/problem+json", content)
        .build()
}

/// Written once: the document does not change while the server runs.
static TEXT: LazyLock<String> = LazyLock::new(|| document().to_json().unwrap_or_default());

/// The document and the pages that show it; nothing on them comes from another server.
pub(crate) fn pages() -> Router<ApiState> {
    let config = Config::new(["/openapi.json"])
        .validator_url("none")
        .persist_authorization(false);
    Router::new()
        .route(
            "/openapi.json",
            get(async || ([(CONTENT_TYPE, "application/json")], TEXT.as_str())),
        )
        .merge(SwaggerUi::new("/docs").config(config))
}
