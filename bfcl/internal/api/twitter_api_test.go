package api

import (
	"testing"

	"rcgrpo/bfcl/internal/py"
)

func TestDefaultListsOfTweetsAreOneObject(t *testing.T) {
	p := start(t, "TwitterAPI", `{"authenticated": true}`)
	p.want(`{"id": 0, "username": "john", "content": "first", "tags": [], "mentions": []}`, "post_tweet", "first")
	p.want(`{"id": 1, "username": "john", "content": "own", "tags": [], "mentions": ["@o"]}`, "post_tweet", "own", py.NewList(), py.NewList("@o"))
	p.want(`{"mention_status": "Users mentioned successfully"}`, "mention", int64(0), "@x")

	// A clone keeps the sharing among its own tweets and takes no part in the original's.
	copied := &play{t, p.class, p.it.Clone(&py.Memo{})}
	p.want(`{"mention_status": "Users mentioned successfully"}`, "mention", int64(0), py.NewList("@later"))
	p.want(`{"id": 2, "username": "john", "content": "third", "tags": [], "mentions": ["@", "x", "@later"]}`, "post_tweet", "third")
	copied.want(`{"id": 2, "username": "john", "content": "third", "tags": [], "mentions": ["@", "x"]}`, "post_tweet", "third")
	copied.want(`{"mention_status": "Users mentioned successfully"}`, "mention", int64(2), py.NewList("@c"))
	copied.want(`{"id": 0, "username": "john", "content": "first", "tags": [], "mentions": ["@", "x", "@c"]}`, "get_tweet", int64(0))
	p.want(`{"id": 1, "username": "john", "content": "own", "tags": [], "mentions": ["@o"]}`, "get_tweet", int64(1))
}

func TestTweetKeys(t *testing.T) {
	p := start(t, "TwitterAPI", `{"authenticated": true, "tweets": {"1": {"username": "a", "content": "Hi", "tags": ["#Tag"]}}, "comments": {"1": ["lost"]}}`)
	p.want(`{"username": "a", "content": "Hi", "tags": ["#Tag"]}`, "get_tweet", 1.0)
	p.want(`{"error": "Tweet with ID 1 not found."}`, "get_tweet", "1")
	p.want(`TypeError: unhashable type: 'list'`, "get_tweet", py.NewList())
	p.want(`[]`, "get_tweet_comments", int64(1)) // the loaded key is the string
	p.want(`{"comment_status": "Comment added successfully"}`, "comment", true, "c")
	p.want(`[{'username': 'john', 'content': 'c'}]`, "get_tweet_comments", int64(1))
	p.want(`KeyError: 'mentions'`, "mention", int64(1), py.NewList("@x"))
	p.want(`{"retweet_status": "Successfully retweeted"}`, "retweet", int64(1))
	p.want(`{"retweet_status": "Already retweeted"}`, "retweet", 1.0)
	p.want(`{"tweet_count": 0, "following_count": 2, "retweet_count": 1}`, "get_user_stats", "john")
	p.want(`{"tweet_count": 1, "following_count": 0, "retweet_count": 0}`, "get_user_stats", "a")
	p.want(`[{'username': 'a', 'content': 'Hi', 'tags': ['#Tag']}]`, "search_tweets", "#TAG")
	p.want(`[]`, "search_tweets", "#Ta")
	p.want(`AttributeError: 'NoneType' object has no attribute 'lower'`, "search_tweets", nil)
}

func TestFollowingNeedsALogin(t *testing.T) {
	p := start(t, "TwitterAPI", "")
	p.want(`{"error": "User not authenticated. Please authenticate before listing following."}`, "list_all_following")
	p.want(`{"authentication_status": false}`, "authenticate_twitter", "john", "wrong")
	p.want(`{"authentication_status": true}`, "authenticate_twitter", "john", "john123")
	p.want(`{"login_status": true}`, "posting_get_login_status")
	p.want(`{"follow_status": false}`, "follow_user", "alice")
	p.want(`{"follow_status": true}`, "follow_user", "zed")
	p.want(`{"unfollow_status": true}`, "unfollow_user", "alice")
	p.want(`{"unfollow_status": false}`, "unfollow_user", "alice")
	p.want(`{"following_list": ["bob", "zed"]}`, "list_all_following")
}
