//! From state to router: every route once, each with its documentation.

use crate::code::Code;
use crate::edge::{REQUEST_ID, edge};
use crate::extract::no_path;
use crate::openapi;
use crate::problem::Problem;
use crate::routes::{
    commands, events, gates, harnesses, health, input, journal, loops, pages, processes, projects,
    providers, sessions, snapshots, tokens, workspaces,
};
use crate::state::ApiState;
use axum::routing::get;
use axum::{Router, middleware};
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Documented routes. A handler cannot be routed without its documentation, nor the reverse.
pub(crate) fn documented() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(health::capabilities))
        .routes(routes!(harnesses::list))
        .routes(routes!(harnesses::show))
        .routes(routes!(projects::list, projects::create))
        .routes(routes!(projects::show))
        .routes(routes!(workspaces::list, workspaces::create))
        .routes(routes!(workspaces::show))
        .routes(routes!(commands::draft))
        .routes(routes!(sessions::list, sessions::create))
        .routes(routes!(sessions::show, sessions::change, sessions::delete))
        .routes(routes!(sessions::messages))
        .routes(routes!(sessions::shutdown))
        .routes(routes!(sessions::restore))
        .routes(routes!(commands::show, commands::invoke))
        .routes(routes!(input::send))
        .routes(routes!(input::queue))
        .routes(routes!(input::retract))
        .routes(routes!(input::release))
        .routes(routes!(input::interrupt))
        .routes(routes!(loops::list, loops::create))
        .routes(routes!(loops::activate))
        .routes(routes!(loops::set_mode))
        .routes(routes!(loops::set_inference))
        .routes(routes!(loops::compact))
        .routes(routes!(snapshots::checkpoint))
        .routes(routes!(snapshots::restore))
        .routes(routes!(processes::list))
        .routes(routes!(processes::stop))
        .routes(routes!(gates::list))
        .routes(routes!(gates::answer))
        .routes(routes!(events::session))
        .routes(routes!(journal::show))
        .routes(routes!(events::lists))
        .routes(routes!(providers::list, providers::install))
        .routes(routes!(providers::show, providers::remove))
        .routes(routes!(providers::release))
        .routes(routes!(providers::logs))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
}

/// The whole API over one state. Tests drive it with `oneshot`.
pub fn router(state: ApiState) -> Router {
    let (routes, _) = documented().split_for_parts();
    let mut routes = routes
        .route("/", get(pages::root))
        .merge(openapi::pages())
        .fallback(async || no_path())
        .method_not_allowed_fallback(async || {
            Problem::new(
                Code::MethodNotAllowed,
                "the path does not take this method; the `Allow` header lists those it takes",
            )
        });
    let origins: Vec<HeaderValue> = state
        .policy()
        .origins()
        .iter()
        .filter_map(|origin| HeaderValue::from_str(origin).ok())
        .collect();
    if !origins.is_empty() {
        routes = routes.layer(
            CorsLayer::new()
                .allow_origin(AllowOrigin::list(origins))
                .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
                .allow_headers([
                    AUTHORIZATION,
                    CONTENT_TYPE,
                    HeaderName::from_static("idempotency-key"),
                    HeaderName::from_static("last-event-id"),
                    REQUEST_ID,
                ])
                .expose_headers([REQUEST_ID]),
        );
    }
    routes
        .layer(middleware::from_fn_with_state(state.clone(), edge))
        .with_state(state)
}
