//! The requests of the protocol: tools, tasks and resources, each carried to the API.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CreateTaskResult, ErrorData,
    GetTaskParams, GetTaskResult, Implementation, ListResourceTemplatesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ResourceContents, ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};

use crate::answer;
use crate::api::{ApiClient, ApiRequest, ApiResponse, Trace, Unanswered, escape};
use crate::resources;
use crate::tasks;
use crate::tools::{self, Call, Waits};
use crate::wait::{self, Progress};

/// The instructions that a client gives to its model.
const INSTRUCTIONS: &str = "\
Laneway is a durable job scheduler. Submit work with submit_job and read its result with wait_for_job; a job that was \
accepted survives crashes and is retried by its policy. If a job does not start, explain_job says why. If a job failed, \
get_job has the error and list_job_logs its output. Use idempotency_key when you may send the same submit twice.";

/// How long a client may keep the list of tools, in milliseconds. It changes only with the version of the server.
const LIST_TTL_MS: u64 = 3_600_000;

/// Answers the requests of clients. Clones share the way to the API.
#[derive(Clone)]
pub struct Handler {
    api: Arc<dyn ApiClient>,
}

impl Handler {
    /// A handler that sends requests to this API.
    pub fn new(api: Arc<dyn ApiClient>) -> Handler {
        Handler { api }
    }

    async fn call(
        &self,
        request: ApiRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<ApiResponse, Unanswered> {
        self.api.call(request, context.extensions.get::<Parts>()).await
    }

    /// Sends the request of a tool. If the call waits for a job, a client that knows tasks gets one, and another client waits.
    async fn run(
        &self,
        waits: Waits,
        call: Call,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, Unanswered> {
        let Some(wait_s) = call.wait_s else {
            return Ok(answer::result(&self.call(call.request, context).await?).into());
        };
        let knows_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        let limit = Duration::from_secs(wait_s);
        // A wait without tasks begins with the first slice, which shows the job, too.
        let first = match (waits, knows_tasks) {
            (Waits::Always, false) => None,
            _ => Some(self.call(call.request.clone(), context).await?),
        };
        let id = match &first {
            None => path_id(&call.request.path),
            Some(response) => match answer::job_in(response) {
                None => return Ok(answer::result(response).into()),
                Some(job) if knows_tasks => {
                    return Ok(CallToolResponse::Task(CreateTaskResult::new(tasks::task(&job))));
                }
                Some(job) => job.id.into_owned(),
            },
        };
        self.wait(&id, limit, context).await.map(Into::into)
    }

    async fn wait(
        &self,
        id: &str,
        limit: Duration,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Unanswered> {
        let token = context.meta.get_progress_token();
        let progress = token.map(|token| Progress { peer: &context.peer, token });
        let http = context.extensions.get::<Parts>();
        let waited = wait::for_job(&*self.api, http, id, limit, progress);
        // The job goes on when its client goes away or stops waiting.
        match context.ct.run_until_cancelled(waited).await {
            Some(response) => Ok(answer::ended(&response?)),
            None => Err(Unanswered {
                code: "canceled",
                message: "the call was canceled; the job goes on".to_owned(),
            }),
        }
    }

    /// Reads or changes the job of a task. Another answer than a success is an error of the protocol.
    async fn job_of_task(
        &self,
        request: ApiRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<ApiResponse, ErrorData> {
        let response = self.call(request, context).await.map_err(|error| internal(&error))?;
        if (200..300).contains(&response.status) { Ok(response) } else { Err(protocol_error(&response)) }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        let mut info = ServerConfig::new(capabilities).with_instructions(INSTRUCTIONS);
        info.server_info = Implementation::new("laneway", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all().to_vec()).with_ttl_ms(LIST_TTL_MS))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(operation) = tools::find(&request.name) else {
            let message = format!("there is no tool {:?}; the tools are: {}", request.name, tools::names());
            return Err(ErrorData::invalid_params(message, None));
        };
        let mut call = match operation.call(request.arguments.unwrap_or_default()) {
            Ok(call) => call,
            Err(wrong) => return Ok(answer::wrong_argument(&wrong).into()),
        };
        call.request.trace = context.meta.get_traceparent().map(|parent| Trace {
            parent: parent.to_owned(),
            state: context.meta.get_tracestate().map(str::to_owned),
        });
        let answered = self.run(operation.waits, call, &context).await;
        Ok(answered.unwrap_or_else(|error| answer::unanswered(&error).into()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()).with_ttl_ms(LIST_TTL_MS))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let Some(request) = resources::request(&uri) else {
            let message =
                format!("{uri:?} is no resource; use laneway://jobs/{{id}} or laneway://runs/{{id}}");
            return Err(ErrorData::resource_not_found(message, Some(json!({"uri": uri}))));
        };
        let response = self.call(request, &context).await.map_err(|error| internal(&error))?;
        if !(200..300).contains(&response.status) {
            let error = protocol_error(&response);
            return Err(match response.status {
                404 => ErrorData::resource_not_found(error.message, error.data),
                _ => error,
            });
        }
        let text = String::from_utf8_lossy(&response.body).into_owned();
        let contents = ResourceContents::text(text, uri).with_mime_type(resources::JSON);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let response = self.job_of_task(ApiRequest::get(job_path(&request.task_id)?), &context).await?;
        let task = tasks::detailed(&response).ok_or_else(|| protocol_error(&response))?;
        Ok(GetTaskResult::new(task))
    }

    /// No task asks its client for anything, so an answer is only checked for its task.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.job_of_task(ApiRequest::get(job_path(&request.task_id)?), &context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let path = format!("{}/cancel", job_path(&request.task_id)?);
        match self.job_of_task(ApiRequest::post(path), &context).await {
            // A cancel of a task that has ended changes nothing and is acknowledged.
            Err(error) if code_of(&error) == Some("already_ended") => Ok(()),
            canceled => canceled.map(drop),
        }
    }
}

/// The path of the job of a task.
fn job_path(task: &str) -> Result<String, ErrorData> {
    if matches!(task, "" | "." | "..") {
        return Err(ErrorData::invalid_params(format!("{task:?} is not the id of a task"), None));
    }
    Ok(format!("/v1/jobs/{}", escape(task)))
}

/// The id in the path of a request that shows a job. It is escaped already, and ids have nothing to escape.
fn path_id(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// A rejection by the API as an error of the protocol, with the API's problem as data.
fn protocol_error(response: &ApiResponse) -> ErrorData {
    match serde_json::from_slice::<laneway_wire::Problem>(&response.body) {
        Ok(problem) if response.status < 500 => {
            ErrorData::invalid_params(answer::sentence_of(&problem), Some(json!(problem)))
        }
        Ok(problem) => ErrorData::internal_error(answer::sentence_of(&problem), Some(json!(problem))),
        Err(_) => ErrorData::internal_error(format!("the server answered {}", response.status), None),
    }
}

fn internal(error: &Unanswered) -> ErrorData {
    ErrorData::internal_error(error.message.clone(), Some(json!({"code": error.code})))
}

fn code_of(error: &ErrorData) -> Option<&str> {
    error.data.as_ref()?.get("code").and_then(Value::as_str)
}
