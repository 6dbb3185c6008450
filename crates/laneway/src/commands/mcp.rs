//! `laneway mcp`: lets an agent call a server over the Model Context Protocol, on standard input and output.

use std::sync::Arc;

use axum::http::request::Parts;
use laneway_mcp::{Answering, ApiClient, ApiRequest, ApiResponse, Unanswered, serve_stdio};

use crate::client::Client;
use crate::mcp::{ANSWER_MAX, method_of, too_large, trace_headers};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An agent's client starts this command and speaks to it over standard input and output. It calls the server of --url with \
the token of LANEWAY_TOKEN or --token-file, and may do what that token may do. The server also has the same tools at \
its path /mcp, for clients that speak streamable HTTP. See docs/guides/mcp.md.

Examples:
  laneway mcp
  laneway --url https://jobs.example:7717 --token-file ~/.laneway-token mcp")]
pub struct McpArgs {}

/// Serves one client until it closes standard input.
pub async fn run(client: &Client) -> anyhow::Result<()> {
    let api = Remote { client: client.clone() };
    Ok(serve_stdio(Arc::new(api)).await?)
}

/// Calls a server over HTTP.
struct Remote {
    client: Client,
}

impl ApiClient for Remote {
    fn call<'a>(&'a self, request: ApiRequest, _: Option<&'a Parts>) -> Answering<'a> {
        Box::pin(async move {
            let ApiRequest { method, path, body, trace } = request;
            let headers = trace_headers(trace).unwrap_or_default();
            let unreachable = |error: anyhow::Error| Unanswered {
                code: "unreachable",
                message: format!("{error:#}").replace('\n', "; "),
            };
            let sent = self.client.exchange(method_of(method), &path, body, headers).await;
            let mut response = sent.map_err(unreachable)?;
            let (status, mut body) = (response.status().as_u16(), Vec::new());
            loop {
                let chunk = response
                    .chunk()
                    .await
                    .map_err(|error| unreachable(crate::client::broke_off("answer", &error).into()))?;
                match chunk {
                    None => return Ok(ApiResponse { status, body }),
                    Some(chunk) if body.len() + chunk.len() > ANSWER_MAX => return Err(too_large()),
                    Some(chunk) => body.extend_from_slice(&chunk),
                }
            }
        })
    }
}
