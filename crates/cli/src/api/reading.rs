//! Reading single things and lists.

use sampler_verify::api::{ListPage, Span};
use serde::de::DeserializeOwned;

use super::{Answer, Api, ApiError, Query, Request};

/// How many spans are asked for at once. One can hold some hundred KB.
const SPANS_PER_PAGE: usize = 100;
/// How many usages, or other small things, are asked for at once.
const PAGE_MAX: usize = 1_000;
/// How many pages in a row may be empty and lead on: a server looks only so far for each.
const EMPTY_PAGES_MAX: u32 = 1_000;

impl Api {
    pub(crate) async fn single(&self, path: &[&str]) -> Result<Answer, ApiError> {
        self.call(&Request::get(path)).await
    }

    /// One span, if it is still there.
    pub(crate) async fn span(&self, id: &str) -> Result<Option<Span>, ApiError> {
        let path = ["v1", "spans", id];
        match self.single(&path).await {
            Err(error) if error.status() == Some(404) => Ok(None),
            answer => answer?.read(&path).map(Some),
        }
    }

    /// The first `most` items of a list, and whether there are more.
    pub(crate) async fn items<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query,
        most: usize,
    ) -> Result<(Vec<T>, bool), ApiError> {
        let mut items = Vec::new();
        let take = |page: Vec<T>| items.extend(page);
        let is_more = self.pages(path, query, most, take).await?;
        Ok((items, is_more))
    }

    /// Hands over a whole list, page by page.
    pub(crate) async fn each_page<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: Query,
        take: impl FnMut(Vec<T>),
    ) -> Result<(), ApiError> {
        self.pages(path, &query, usize::MAX, take).await?;
        Ok(())
    }

    /// Hands over the first `most` items of a list. Returns whether there are more.
    async fn pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query,
        most: usize,
        mut take: impl FnMut(Vec<T>),
    ) -> Result<bool, ApiError> {
        let page = match path {
            ["v1", "spans"] => SPANS_PER_PAGE,
            _ => PAGE_MAX,
        };
        let (mut left, mut cursor, mut empty) = (most, None::<String>, 0);
        loop {
            let mut query = query.clone();
            query.push(("limit", page.min(left).to_string()));
            query.extend(cursor.clone().map(|cursor| ("cursor", cursor)));
            let answer = self.call(&Request::get(path).query(query)).await?;
            let ListPage { mut items } = answer.read(path)?;
            let is_cut = items.len() > left;
            items.truncate(left);
            left -= items.len();
            empty = if items.is_empty() { empty + 1 } else { 0 };
            take(items);
            let next = answer.cursor;
            if left == 0 || next.is_none() {
                return Ok(next.is_some() || is_cut);
            }
            if next == cursor || empty > EMPTY_PAGES_MAX {
                return Err(ApiError::Endless);
            }
            cursor = next;
        }
    }
}
