//! Projects, workspaces, tokens, rules and named values.

use super::*;
use crate::{
    NewToken, PageRequest, PermissionRule, Project, Token, TokenScope, Workspace, WorkspaceState,
    WorkspaceTarget,
};

fn project(id: &str) -> Project {
    Project {
        id: id.parse().unwrap(),
        name: format!("Project {id}"),
        default_workspace_id: None,
    }
}

fn workspace(id: &str, project: &str) -> Workspace {
    Workspace {
        id: id.parse().unwrap(),
        project_id: project.parse().unwrap(),
        target: WorkspaceTarget::Local {
            root_path: "/srv/work".to_owned(),
        },
        state: WorkspaceState::Ready,
    }
}

fn token(n: u64, at: i64) -> NewToken {
    let token = Token {
        id: token_id(n),
        name: format!("token {n}"),
        scopes: vec![TokenScope::Read, TokenScope::Invoke],
        projects: vec!["a".parse().unwrap()],
        created_at_ms: at,
    };
    NewToken {
        token,
        hash: [n as u8; 32],
    }
}

pub async fn projects_and_workspaces(backend: &dyn Backend) {
    let store = backend.open().await;
    let mut a = project("a");
    a.default_workspace_id = Some("w".parse().unwrap());
    store
        .create_project(a.clone(), Some(workspace("w", "a")))
        .await
        .unwrap();
    check_code(store.create_project(project("a"), None).await, "exists");
    check_code(store.create_workspace(workspace("w", "a")).await, "exists");
    check_code(
        store.create_workspace(workspace("x", "none")).await,
        "not_found",
    );
    let remote = Workspace {
        target: WorkspaceTarget::Remote {
            host: "far".to_owned(),
            path: "/x".to_owned(),
        },
        state: WorkspaceState::Initializing,
        ..workspace("r", "a")
    };
    store.create_workspace(remote.clone()).await.unwrap();
    store
        .set_workspace_state(remote.id.clone(), WorkspaceState::Failed)
        .await
        .unwrap();
    let unknown = store
        .set_workspace_state("none".parse().unwrap(), WorkspaceState::Ready)
        .await;
    check_code(unknown, "not_found");
    let store = backend.reopen(store).await;
    assert_eq!(store.project(a.id.clone()).await.unwrap(), Some(a));
    assert_eq!(store.project("none".parse().unwrap()).await.unwrap(), None);
    let failed = Workspace {
        state: WorkspaceState::Failed,
        ..remote
    };
    assert_eq!(
        store.workspace(failed.id.clone()).await.unwrap(),
        Some(failed.clone())
    );
    let all = store
        .workspaces(Vec::new(), PageRequest::default())
        .await
        .unwrap();
    assert_eq!(all.items, [failed, workspace("w", "a")]);
    let other = vec!["b".parse().unwrap()];
    let none = store
        .workspaces(other, PageRequest::default())
        .await
        .unwrap();
    assert!(none.items.is_empty());
    let nameless = Project {
        name: String::new(),
        ..project("n")
    };
    check_code(store.create_project(nameless, None).await, "invalid");
    let long = Project {
        name: "n".repeat(257),
        ..project("n")
    };
    check_code(store.create_project(long, None).await, "too_large");
}

pub async fn project_with_workspace_is_all_or_nothing(backend: &dyn Backend) {
    let store = backend.open().await;
    store
        .create_project(project("a"), Some(workspace("w", "a")))
        .await
        .unwrap();
    check_code(
        store
            .create_project(project("b"), Some(workspace("w", "b")))
            .await,
        "exists",
    );
    assert_eq!(store.project("b".parse().unwrap()).await.unwrap(), None);
}

pub async fn lists_page_with_opaque_cursors(backend: &dyn Backend) {
    let store = backend.open().await;
    for n in 0..7 {
        store
            .create_project(project(&format!("p{n}")), None)
            .await
            .unwrap();
        store
            .create_workspace(workspace(&format!("w{n}"), &format!("p{n}")))
            .await
            .unwrap();
        // Newest first in id order, equal times: time decides, then the id.
        store
            .create_token(token(n, 3 - n as i64 / 2))
            .await
            .unwrap();
    }
    let request = |cursor: Option<String>| PageRequest { limit: 3, cursor };
    let mut cursors = (None, None, None);
    let (mut projects, mut workspaces, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let page = store.projects(request(cursors.0)).await.unwrap();
        projects.extend(page.items.into_iter().map(|item| item.id.to_string()));
        let next = store
            .workspaces(Vec::new(), request(cursors.1))
            .await
            .unwrap();
        workspaces.extend(next.items.into_iter().map(|item| item.id.to_string()));
        let last = store.tokens(request(cursors.2)).await.unwrap();
        tokens.extend(last.items.into_iter().map(|item| item.id));
        cursors = (page.next_cursor, next.next_cursor, last.next_cursor);
    }
    assert_eq!(cursors, (None, None, None), "seven items are three pages");
    assert_eq!(
        projects,
        (0..7).map(|n| format!("p{n}")).collect::<Vec<_>>()
    );
    assert_eq!(
        workspaces,
        (0..7).map(|n| format!("w{n}")).collect::<Vec<_>>()
    );
    assert_eq!(tokens, [6, 4, 5, 2, 3, 0, 1].map(token_id));
    let foreign = store.projects(request(None)).await.unwrap().next_cursor;
    check_code(store.tokens(request(foreign.clone())).await, "invalid_page");
    check_code(
        store.workspaces(Vec::new(), request(foreign)).await,
        "invalid_page",
    );
    check_code(
        store
            .projects(PageRequest {
                limit: 0,
                cursor: None,
            })
            .await,
        "invalid_page",
    );
}

pub async fn tokens_are_found_by_hash_only(backend: &dyn Backend) {
    let store = backend.open().await;
    store.create_token(token(1, 1)).await.unwrap();
    let same_hash = NewToken {
        hash: [1; 32],
        ..token(2, 1)
    };
    check_code(store.create_token(same_hash).await, "exists");
    check_code(
        store
            .create_token(NewToken {
                hash: [9; 32],
                ..token(1, 1)
            })
            .await,
        "exists",
    );
    let store = backend.reopen(store).await;
    assert_eq!(
        store.token_by_hash([1; 32]).await.unwrap(),
        Some(token(1, 1).token)
    );
    assert_eq!(store.token_by_hash([2; 32]).await.unwrap(), None);
    store.delete_token(token_id(1)).await.unwrap();
    assert_eq!(store.token_by_hash([1; 32]).await.unwrap(), None);
    check_code(store.delete_token(token_id(1)).await, "not_found");
}

pub async fn s83_rules_are_stored_whole(backend: &dyn Backend) {
    let store = backend.open().await;
    let rule = |harness: &str, workspace: &str, rule: &str| PermissionRule {
        harness_id: harness.parse().unwrap(),
        workspace_id: workspace.parse().unwrap(),
        rule: rule.to_owned(),
    };
    let both = vec![rule("d/p", "w", "read"), rule("d/p", "w", "write")];
    let bad = vec![both[0].clone(), rule("d/p", "w", "")];
    check_code(store.store_rules(bad).await, "invalid");
    assert!(
        !store.rules_stored(both[..1].to_vec()).await.unwrap(),
        "all or none"
    );
    store.store_rules(both[..1].to_vec()).await.unwrap();
    assert!(
        !store.rules_stored(both.clone()).await.unwrap(),
        "every rule must be stored"
    );
    store.store_rules(both.clone()).await.unwrap();
    let store = backend.reopen(store).await;
    assert!(store.rules_stored(both).await.unwrap());
    assert!(
        !store
            .rules_stored(vec![rule("d/q", "w", "read")])
            .await
            .unwrap()
    );
    assert!(
        !store
            .rules_stored(vec![rule("d/p", "v", "read")])
            .await
            .unwrap()
    );
    assert!(
        !store.rules_stored(Vec::new()).await.unwrap(),
        "no rule allows nothing"
    );
}

pub async fn named_values(backend: &dyn Backend) {
    let store = backend.open().await;
    assert_eq!(store.meta("key").await.unwrap(), None);
    let first = store
        .meta_or_insert("key", Bytes::from_static(b"1"))
        .await
        .unwrap();
    let second = store
        .meta_or_insert("key", Bytes::from_static(b"2"))
        .await
        .unwrap();
    assert_eq!(
        (first.as_ref(), second.as_ref()),
        (&b"1"[..], &b"1"[..]),
        "the first stays"
    );
    store
        .set_meta("key", Bytes::from_static(b"3"))
        .await
        .unwrap();
    let store = backend.reopen(store).await;
    assert_eq!(store.meta("key").await.unwrap().unwrap(), "3");
    check_code(store.set_meta("", Bytes::new()).await, "invalid");
    check_code(
        store
            .set_meta("key", Bytes::from(vec![0; (64 << 10) + 1]))
            .await,
        "too_large",
    );
}
