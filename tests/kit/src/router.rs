//! A stand-in for the router of a sharded cluster, in front of a real server.
//!
//! It says of itself what a router says, answers how collections are sharded, and hands all
//! other commands on to the server behind it. It keeps each command, so that a test can ask what a router
//! would have had to route. It routes nothing: there is one server.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use mongodb::bson::{Bson, Document, doc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The length, the number of the request, the number that is answered, and the kind of message.
const HEADER: usize = 16;
/// A command, or an answer.
const OP_MSG: i32 = 2_013;
/// What the first answer of a connection may still be.
const OP_REPLY: i32 = 1;
/// Where the document of an answer begins, by its kind.
const IN_MSG: usize = HEADER + 4 + 1;
const IN_REPLY: usize = HEADER + 20;
/// How many shards it pretends to have.
pub const SHARDS: i32 = 2;

/// What it has been asked so far.
#[derive(Debug, Default)]
struct State {
    commands: Vec<Document>,
    /// What each collection is sharded by.
    keys: BTreeMap<String, Document>,
}

/// A running stand-in. It goes when this value goes.
#[derive(Debug)]
pub struct Router {
    port: u16,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

impl Router {
    /// Starts one in front of the server on this port.
    ///
    /// # Panics
    /// Where there is no port for it.
    pub async fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // A connection that breaks is its client's to make again.
                tokio::spawn(async move { drop(serve(client, upstream, &state).await) });
            }
        });
        Self {
            port,
            state,
            serving,
        }
    }

    /// The address of a database through it.
    pub fn uri_of(&self, database: &str) -> String {
        format!("mongodb://127.0.0.1:{}/{database}", self.port)
    }

    /// All commands since the last call, but for those that look after connections.
    pub fn take_commands(&self) -> Vec<Document> {
        std::mem::take(&mut locked(&self.state).commands)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn locked(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(mut client: TcpStream, upstream: u16, state: &Mutex<State>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await?;
    loop {
        let request = read_message(&mut client).await?;
        let command = command_of(&request);
        if let Some(answer) = command
            .as_ref()
            .and_then(|command| own_answer(command, state))
        {
            client.write_all(&message(&request, &answer)).await?;
            continue;
        }
        server.write_all(&request).await?;
        let answer = read_message(&mut server).await?;
        client.write_all(&disguised(answer)).await?;
    }
}

async fn read_message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut message = vec![0; HEADER];
    stream.read_exact(&mut message).await?;
    let length = usize::try_from(number(&message, 0)).unwrap_or(HEADER);
    message.resize(length.max(HEADER), 0);
    stream.read_exact(&mut message[HEADER..]).await?;
    Ok(message)
}

fn number(message: &[u8], at: usize) -> i32 {
    let bytes = message
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok());
    bytes.map_or(0, i32::from_le_bytes)
}

/// The command in a message, with the lists that may lie beside its document.
fn command_of(request: &[u8]) -> Option<Document> {
    if number(request, 12) != OP_MSG {
        return None;
    }
    let mut rest = Cursor::new(request.get(IN_MSG..)?);
    let mut command = Document::from_reader(&mut rest).ok()?;
    let has_checksum = number(request, HEADER) & 1 == 1;
    let end = request.len() - if has_checksum { 4 } else { 0 };
    let mut at = IN_MSG + usize::try_from(rest.position()).ok()?;
    while at < end && request[at] == 1 {
        let size = usize::try_from(number(request, at + 1)).ok()?;
        let list = &request[at + 5..at + 1 + size];
        let name_end = list.iter().position(|byte| *byte == 0)?;
        let name = std::str::from_utf8(&list[..name_end]).ok()?;
        let mut documents = Cursor::new(&list[name_end + 1..]);
        let mut items = Vec::new();
        while let Ok(item) = Document::from_reader(&mut documents) {
            items.push(Bson::Document(item));
        }
        command.insert(name, items);
        at += 1 + size;
    }
    Some(command)
}

/// The answer to a command that the server behind does not know.
fn own_answer(command: &Document, state: &Mutex<State>) -> Option<Document> {
    let name = command.keys().next()?.as_str();
    if !["hello", "isMaster", "ismaster", "ping", "endSessions"].contains(&name) {
        locked(state).commands.push(command.clone());
    }
    match name {
        "shardCollection" => {
            let key = command.get_document("key").ok()?.clone();
            let namespace = command.get_str("shardCollection").ok()?.to_owned();
            locked(state).keys.insert(namespace, key);
            Some(doc! { "ok": 1 })
        }
        "count" if is_config(command) => Some(doc! { "ok": 1, "n": SHARDS }),
        "find" if is_config(command) => {
            let namespace = command.get_document("filter").ok()?.get_str("_id").ok()?;
            let key = locked(state).keys.get(namespace).cloned();
            let found: Vec<_> = key
                .map(|key| doc! { "_id": namespace, "key": key })
                .into_iter()
                .collect();
            let cursor = doc! { "id": 0_i64, "ns": "config.collections", "firstBatch": found };
            Some(doc! { "ok": 1, "cursor": cursor })
        }
        _ => None,
    }
}

fn is_config(command: &Document) -> bool {
    command.get_str("$db").is_ok_and(|name| name == "config")
}

fn message(request: &[u8], answer: &Document) -> Vec<u8> {
    let mut bytes = vec![0; HEADER + 5];
    bytes[8..12].copy_from_slice(&request[4..8]);
    bytes[12..16].copy_from_slice(&OP_MSG.to_le_bytes());
    with_document(bytes, answer)
}

/// A message with a document behind what is there.
fn with_document(mut bytes: Vec<u8>, document: &Document) -> Vec<u8> {
    document
        .to_writer(&mut bytes)
        .expect("a document can be written");
    let length = i32::try_from(bytes.len()).expect("a short message");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// The answer of the server as a router would give it: one that says what the server is, is changed.
fn disguised(answer: Vec<u8>) -> Vec<u8> {
    let begin = match number(&answer, 12) {
        OP_MSG => IN_MSG,
        OP_REPLY => IN_REPLY,
        _ => return answer,
    };
    let document = answer.get(begin..).map(Document::from_reader);
    let Some(Ok(mut document)) = document else {
        return answer;
    };
    if !document.contains_key("maxWireVersion") {
        return answer;
    }
    for of_replica_set in [
        "setName",
        "setVersion",
        "hosts",
        "primary",
        "me",
        "electionId",
        "lastWrite",
        "secondary",
        "topologyVersion",
    ] {
        document.remove(of_replica_set);
    }
    document.insert("msg", "isdbgrid");
    with_document(answer[..begin].to_vec(), &document)
}
