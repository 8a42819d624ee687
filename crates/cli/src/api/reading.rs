//! Reading single things and lists.

use sampler_verify::api::{Entry, ListPage, Span};
use serde::de::DeserializeOwned;

use super::{Answer, Api, ApiError, Query, Request, path_of};

/// How many spans are asked for at once. One can hold some hundred KB.
const SPANS_PER_PAGE: usize = 100;
/// How many usages, or other small things, are asked for at once.
const PAGE_MAX: usize = 1_000;
/// How many pages in a row may be empty and lead on: a server looks only so far for each.
const EMPTY_PAGES_MAX: u32 = 1_000;

/// A page of a list, and the cursor of the next.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
    pub(crate) cursor: Option<String>,
}

/// Where a reader of a list is.
#[derive(Debug, Default)]
pub(crate) struct Position {
    cursor: Option<String>,
    empty: u32,
}

impl Position {
    /// Goes on behind a page. Returns whether there is another.
    pub(crate) fn advance(
        &mut self,
        items: usize,
        cursor: Option<String>,
    ) -> Result<bool, ApiError> {
        self.empty = if items == 0 { self.empty + 1 } else { 0 };
        let leads_nowhere = cursor == self.cursor || self.empty > EMPTY_PAGES_MAX;
        if cursor.is_some() && leads_nowhere {
            return Err(ApiError::Endless);
        }
        self.cursor = cursor;
        Ok(self.cursor.is_some())
    }
}

impl Api {
    pub(crate) async fn spans(
        &self,
        query: &Query,
        position: &Position,
    ) -> Result<Listed<Span>, ApiError> {
        let path = ["v1", "spans"];
        let found = self.list(&path, query, SPANS_PER_PAGE, position).await;
        found.map_err(|error| not_there(error, &path))
    }

    /// One span, if it is still there.
    pub(crate) async fn span(&self, id: &str) -> Result<Option<Span>, ApiError> {
        let path = ["v1", "spans", id];
        let found = self
            .call(&Request::get(&path))
            .await
            .and_then(|answer| answer.read(&path));
        if_there(found)
    }

    /// A page of the usages of a span, if that is still there.
    pub(crate) async fn usages(
        &self,
        id: &str,
        position: &Position,
    ) -> Result<Option<Listed<Entry>>, ApiError> {
        let path = ["v1", "spans", id, "usages"];
        if_there(self.list(&path, &Query::new(), PAGE_MAX, position).await)
    }

    pub(crate) async fn single(&self, path: &[&str]) -> Result<Answer, ApiError> {
        self.call(&Request::get(path)).await
    }

    /// The first `most` items of a list, and whether there are more.
    pub(crate) async fn items<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query,
        most: usize,
    ) -> Result<(Vec<T>, bool), ApiError> {
        let page = match path {
            ["v1", "spans"] => SPANS_PER_PAGE,
            _ => PAGE_MAX,
        };
        let mut position = Position::default();
        let mut items = Vec::new();
        loop {
            let limit = page.min(most - items.len()).max(1);
            let found = self.list(path, query, limit, &position).await?;
            let count = found.items.len();
            items.extend(found.items);
            let is_more = position.advance(count, found.cursor)?;
            if items.len() >= most || !is_more {
                let is_cut = items.len() > most;
                items.truncate(most);
                return Ok((items, is_more || is_cut));
            }
        }
    }

    /// Hands over a whole list of spans, page by page.
    pub(crate) async fn each_page<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: Query,
        mut take: impl FnMut(Vec<T>),
    ) -> Result<(), ApiError> {
        let mut position = Position::default();
        loop {
            let page = self.list(path, &query, SPANS_PER_PAGE, &position).await?;
            let count = page.items.len();
            take(page.items);
            if !position.advance(count, page.cursor)? {
                return Ok(());
            }
        }
    }

    async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query,
        limit: usize,
        position: &Position,
    ) -> Result<Listed<T>, ApiError> {
        let mut query = query.clone();
        query.push(("limit", limit.to_string()));
        query.extend(position.cursor.clone().map(|cursor| ("cursor", cursor)));
        let answer = self.call(&Request::get(path).query(query)).await?;
        let ListPage { items } = answer.read(path)?;
        let cursor = answer.cursor;
        Ok(Listed { items, cursor })
    }
}

/// `None` for a 404.
fn if_there<T>(found: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match found {
        Err(error) if error.status() == Some(404) => Ok(None),
        found => found.map(Some),
    }
}

/// An address that every receiver serves is not there.
fn not_there(error: ApiError, path: &[&str]) -> ApiError {
    match error.status() {
        Some(404) => ApiError::NotThere {
            path: path_of(path),
        },
        _ => error,
    }
}
