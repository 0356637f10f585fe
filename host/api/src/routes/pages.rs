//! The page at the root, for a person who opens the server's address in a browser.

use axum::response::Html;

const ROOT: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Harness Host</title>
<style>
  body { font: 1rem/1.5 system-ui, sans-serif; max-width: 38rem; margin: 4rem auto; padding: 0 1rem; color: #1d2330; background: #fff }
  a { color: #1a56c4 }
  code { font-family: ui-monospace, monospace }
  @media (prefers-color-scheme: dark) { body { color: #e6e9f0; background: #14171f } a { color: #8ab4ff } }
</style>
<h1>Harness Host</h1>
<p>This server runs AI-agent harnesses as sandboxed providers behind one HTTP API: discovery,
prompts, native commands, approvals, questions and events.</p>
<ul>
  <li><a href=\"/docs\">API reference</a></li>
  <li><a href=\"/openapi.json\">OpenAPI document</a></li>
  <li><a href=\"/readyz\">Readiness</a></li>
</ul>
<p>Requests under <code>/v1</code> carry <code>Authorization: Bearer &lt;token&gt;</code>.</p>
</html>
";

/// The page at the root.
pub(crate) async fn root() -> Html<&'static str> {
    Html(ROOT)
}
