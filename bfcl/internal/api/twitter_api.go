package api

import (
	"fmt"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

var twitterMethods = []Method{
	on2("authenticate_twitter", (*twitterAPI).login, Required("username"), Required("password")),
	on0("posting_get_login_status", (*twitterAPI).status),
	loginBefore("posting", on3("post_tweet", (*twitterAPI).post,
		Required("content"), Optional("tags", sharedDefault), Optional("mentions", sharedDefault))),
	loginBefore("retweeting", on1("retweet", (*twitterAPI).retweet, Required("tweet_id"))),
	loginBefore("commenting", on2("comment", (*twitterAPI).comment, Required("tweet_id"), Required("comment_content"))),
	on2("mention", (*twitterAPI).mention, Required("tweet_id"), Required("mentioned_usernames")),
	loginBefore("following", on1("follow_user", (*twitterAPI).follow, Required("username_to_follow"))),
	loginBefore("listing following", on0("list_all_following", (*twitterAPI).listFollowing)),
	loginBefore("unfollowing", on1("unfollow_user", (*twitterAPI).unfollow, Required("username_to_unfollow"))),
	on1("get_tweet", (*twitterAPI).tweet, Required("tweet_id")),
	on1("get_user_tweets", (*twitterAPI).tweetsOf, Required("username")),
	on1("search_tweets", (*twitterAPI).search, Required("keyword")),
	on1("get_tweet_comments", (*twitterAPI).commentsOn, Required("tweet_id")),
	on1("get_user_stats", (*twitterAPI).stats, Required("username")),
}

// sharedDefault marks omitted tags or mentions of post_tweet, whose defaults are in Shared. No call
// string can produce it.
var sharedDefault py.Value = py.Opaque{Class: "list", Text: "[]"}

// twitterAPI implements TwitterAPI (bfcl/SPEC.md 13.4).
type twitterAPI struct {
	shared        *Shared
	username      py.Value
	password      py.Value
	authenticated py.Value
	tweets        *py.Dict // integer id -> tweet
	comments      py.Value // dict from id to a list; the scenario's ids are strings, so calls never find their comments
	retweets      py.Value // dict from user to list of ids
	following     py.Value // list of names
	counter       py.Value // id of the next tweet
}

func newTwitterAPI() Instance { return &twitterAPI{} }

func (t *twitterAPI) Load(scenario *py.Dict, s *Shared, _ bool) (err error) {
	defer catch(&err)
	t.shared = s
	t.username = setting(scenario, "username", "john")
	t.password = setting(scenario, "password", "john123")
	t.authenticated = setting(scenario, "authenticated", false)
	t.comments = setting(scenario, "comments", py.NewDict())
	t.retweets = setting(scenario, "retweets", py.NewDict())
	t.following = setting(scenario, "following_list", py.NewList("alice", "bob"))
	t.counter = setting(scenario, "tweet_counter", int64(0))
	tweets := asDict(setting(scenario, "tweets", py.NewDict()), "items")
	t.tweets = py.MakeDict(tweets.Len())
	for i := range tweets.Len() {
		key, tweet := tweets.At(i)
		id, err := py.Int(key)
		if err != nil {
			return fmt.Errorf("key of tweet number %d: %w", i+1, err)
		}
		t.tweets.Set(id, tweet)
	}
	return nil
}

func (t *twitterAPI) State() []Attr {
	return []Attr{{"username", t.username}, {"password", t.password}, {"authenticated", t.authenticated},
		{"tweets", t.tweets}, {"comments", t.comments}, {"retweets", t.retweets}, {"following_list", t.following},
		{"tweet_counter", t.counter}}
}

func (t *twitterAPI) Private() []Attr { return nil }

func (t *twitterAPI) Clone(m *py.Memo) Instance {
	return &twitterAPI{
		shared:        t.shared.Clone(m),
		username:      py.Clone(t.username, m),
		password:      py.Clone(t.password, m),
		authenticated: py.Clone(t.authenticated, m),
		tweets:        t.tweets.Clone(m),
		comments:      py.Clone(t.comments, m),
		retweets:      py.Clone(t.retweets, m),
		following:     py.Clone(t.following, m),
		counter:       py.Clone(t.counter, m),
	}
}

// loginBefore makes a method refuse if the user is not logged in. doing names the action in the refusal.
func loginBefore(doing string, m Method) Method {
	return guarded(m, func(t *twitterAPI) bool { return py.Truthy(t.authenticated) },
		"User not authenticated. Please authenticate before "+doing+".")
}

func (t *twitterAPI) post(content, tags, mentions py.Value) py.Value {
	if tags == sharedDefault {
		tags = t.shared.TweetTags
	}
	if mentions == sharedDefault {
		mentions = t.shared.TweetMentions
	}
	tweet := py.NewDict("id", t.counter, "username", t.username, "content", content, "tags", tags, "mentions", mentions)
	check(t.tweets.SetErr(t.counter, tweet))
	t.counter = increment(t.counter)
	return tweet
}

func (t *twitterAPI) login(name, password py.Value) py.Value {
	success := py.Equal(name, t.username) && py.Equal(password, t.password)
	if success {
		t.authenticated = true
	}
	return py.NewDict("authentication_status", success)
}

func (t *twitterAPI) status() py.Value {
	return py.NewDict("login_status", py.Truthy(t.authenticated))
}

func (t *twitterAPI) listFollowing() py.Value {
	return py.NewDict("following_list", t.following)
}

// find returns the tweet of an id and None, or None and the reply that there is no such tweet.
func (t *twitterAPI) find(id py.Value) (tweet, missing py.Value) {
	tweet, known := get(t.tweets, id)
	if !known {
		missing = errorReply("Tweet with ID " + py.Str(id) + " not found.")
	}
	return tweet, missing
}

func (t *twitterAPI) tweet(id py.Value) py.Value {
	tweet, missing := t.find(id)
	if missing != nil {
		return missing
	}
	return tweet
}

func (t *twitterAPI) commentsOn(id py.Value) py.Value {
	if _, missing := t.find(id); missing != nil {
		return missing
	}
	comments := asDict(t.comments, "get")
	if own, ok := comments.Get(id); ok {
		return own
	}
	return py.NewList()
}

// listOf returns table[key]; it inserts a new list if the key is absent.
func listOf(table, key py.Value) py.Value {
	if !try(py.Contains(table, key)) {
		check(py.SetItem(table, key, py.NewList()))
	}
	return try(py.GetItem(table, key))
}

func (t *twitterAPI) retweet(id py.Value) py.Value {
	if _, missing := t.find(id); missing != nil {
		return missing
	}
	own := listOf(t.retweets, t.username)
	if try(py.Contains(own, id)) {
		return py.NewDict("retweet_status", "Already retweeted")
	}
	asList(own, "append").Append(id)
	return py.NewDict("retweet_status", "Successfully retweeted")
}

func (t *twitterAPI) comment(id, text py.Value) py.Value {
	if _, missing := t.find(id); missing != nil {
		return missing
	}
	comments := asList(listOf(t.comments, id), "append")
	comments.Append(py.NewDict("username", t.username, "content", text))
	return py.NewDict("comment_status", "Comment added successfully")
}

// mention extends the tweet's list in place; tweets with the shared default share it. A string
// counts as a list of characters.
func (t *twitterAPI) mention(id, names py.Value) py.Value {
	tweet, missing := t.find(id)
	if missing != nil {
		return missing
	}
	mentions := asList(field(tweet, "mentions"), "extend")
	mentions.Items = append(mentions.Items, try(py.Iterate(names))...)
	return py.NewDict("mention_status", "Users mentioned successfully")
}

func (t *twitterAPI) follow(name py.Value) py.Value {
	already := try(py.Contains(t.following, name))
	if !already {
		asList(t.following, "append").Append(name)
	}
	return py.NewDict("follow_status", !already)
}

func (t *twitterAPI) unfollow(name py.Value) py.Value {
	followed := try(py.Contains(t.following, name))
	if followed {
		asList(t.following, "remove").Remove(name)
	}
	return py.NewDict("unfollow_status", followed)
}

func (t *twitterAPI) tweetsOf(name py.Value) py.Value { return t.ofUser(name) }

func (t *twitterAPI) ofUser(name py.Value) *py.List {
	own := py.NewList()
	for _, tweet := range t.tweets.All() {
		if py.Equal(field(tweet, "username"), name) {
			own.Append(tweet)
		}
	}
	return own
}

// search finds the keyword in texts, case-insensitively, or as an equal tag.
func (t *twitterAPI) search(keyword py.Value) py.Value {
	found := py.NewList()
	if t.tweets.Len() == 0 {
		return found
	}
	wanted := lower(keyword)
	for _, tweet := range t.tweets.All() {
		text := lower(field(tweet, "content"))
		if strings.Contains(text, wanted) || tagged(tweet, wanted) {
			found.Append(tweet)
		}
	}
	return found
}

// tagged reports whether one of the tweet's tags, in lower case, equals wanted. It checks all tags,
// because a tag that is not a string is an error.
func tagged(tweet py.Value, wanted string) bool {
	hit := false
	for _, item := range try(py.Iterate(field(tweet, "tags"))) {
		tag := lower(item)
		hit = hit || tag == wanted
	}
	return hit
}

// stats counts tweets, retweets and, for the account itself, followed users.
func (t *twitterAPI) stats(name py.Value) py.Value {
	tweets := t.ofUser(name)
	following := 0
	if py.Equal(name, t.username) {
		following = try(py.Len(t.following))
	}
	retweeted := 0
	if own, known := get(asDict(t.retweets, "get"), name); known {
		retweeted = try(py.Len(own))
	}
	return py.NewDict("tweet_count", int64(len(tweets.Items)), "following_count", int64(following),
		"retweet_count", int64(retweeted))
}
