package bfcl

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
	"rcgrpo/internal/must"
)

// seeds are calls in common and in unusual spellings.
var seeds = []string{
	"cd(folder='docs')", "ls(a=True)", "mv(source='a', destination='b')",
	"cp('a', 'a')\nfind()\ndu()", "echo(content=1, file_name='f')\nsort('f')",
	"add(a=1, b=-2.5e3)", "mean(numbers=[1, 2, 3,])", "logarithm(8, 2, 10)", "power(2, 0.5)",
	"square_root(2, 30)", "power(-8, 1/3)",
	"authenticate_twitter('john', 'john123')\npost_tweet('x')\nmention(10, 'ab')\n" +
		"post_tweet('y', tags=get_tweet(10)['tags'])",
	"ticket_login('a', 'b')\ncreate_ticket(title='t', priority=3)\n" +
		"edit_ticket(1, {'priority': get_ticket(1)})\nget_ticket(1)",
	"message_login('USR001')\nsend_message(receiver_id='USR002', message='a (b) c')\n" +
		"view_messages_sent()\ndelete_message('USR002')",
	"trading_login('a', 'b')\nplace_order('Buy', 'AAPL', 1, 2)\nget_order_details(12446)\n" +
		"fund_account(1e308)\nget_watchlist()\nget_transaction_history('2024-01-01')",
	"authenticate_travel('a','b','c','d','e','f')\nget_all_credit_cards()\n" +
		"get_flight_cost('SFO', 'LAX', '2024-1-1', 'first')\ncompute_exchange_rate('USD', 'EUR', 1)",
	"startEngine('START')\nlockDoors(unlock=False, door=['driver'])\npressBrakePedal(1)\n" +
		"fillFuelTank(10)\ndisplayCarStatus('fuel')\nset_navigation(1)",
	"[add(1, 2)['result'], {1: (2,), 1.0: None}][0:1]", "f(**{'a': 1})", "lambda x: x",
	"'%s' % 1", "1 if 2 else 3", "((((", "x = 1", "-" + "1", "0x_f", "\"\\u12\"",
	"echo([cat('a.txt')]*9, 'a.txt')\ntail('f', -9223372036854775808)",
	"post_tweet([get_user_tweets('john'), get_user_tweets('john')])\nadd(0o7777777, 0xffffffffffffffffffff)",
	"cp('a', 'a')\nmv('a', 'b')\ncp('b', 'a')\nmv('a', 'b')\nfind()\npower(9999, 9999)\nround_number(1e300, -300)",
	"tail('f', -1)", "ls().keys()", "print('x')", "exit()", "cd(folder='a (cd (b')",
	"cd (folder = \"it's\")", "add(a=1, a=2)", "add(1, 2, 3)", "add(self=1)", "nope",
}

// FuzzClass executes lines of calls on one class, with and without long context: nothing panics, the
// state prints, a clone equals its original, and repeated calls give identical results.
func FuzzClass(f *testing.F) {
	for i, s := range seeds {
		f.Add(i%8, s)
		f.Add(i, s)
	}
	long := testConstants()
	f.Fuzz(func(t *testing.T, which int, text string) {
		classes := api.Classes()
		class := classes[(which%len(classes)+len(classes))%len(classes)].Name
		task := &Task{ID: "fuzz_1", Category: "base", Classes: []string{class},
			InitialConfig: json.RawMessage(`{}`), Turns: []Turn{{}}}
		if which%2 != 0 {
			task.Category = "long_context"
		}
		data := &Data{long: long}
		e := must.Get(task.Start(Settings{Data: data, Today: ReleaseDate}))(t)
		again := must.Get(task.Start(Settings{Data: data, Today: ReleaseDate}))(t)
		lines := strings.SplitN(text, "\n", 12)
		for _, call := range lines {
			first, second := e.policy.run(call), again.policy.run(call)
			if first != second {
				t.Errorf("%q gave %+v, then %+v", call, first, second)
			}
			if !utf8.ValidString(first.Text) && utf8.ValidString(call) {
				t.Errorf("%q gave text that is not UTF-8: %q", call, first.Text)
			}
		}
		c := e.Clone()
		state, err := attrsJSON(e.policy.list[0].State())
		copied, err2 := attrsJSON(c.policy.list[0].State())
		if err != nil || err2 != nil || state != copied {
			t.Errorf("state %s (%v), of the clone %s (%v)", state, err, copied, err2)
		}
		for _, call := range lines {
			c.policy.run(call)
		}
		if after, _ := attrsJSON(e.policy.list[0].State()); after != state {
			t.Error("calls on a clone changed its original")
		}
		e.Verdict()
	})
}

// testConstants returns short long-context constants of the correct types.
func testConstants() map[string]py.Value {
	list := func(items ...py.Value) py.Value { return py.NewList(items...) }
	dict := func(kv ...py.Value) py.Value { return py.NewDict(kv...) }
	m := map[string]py.Value{
		"WATCH_LIST_EXTENSION":          list("X", py.Ellipsis),
		"TRANSACTION_HISTORY_EXTENSION": list(dict("type", "deposit", "timestamp", "2024-01-01 10:00:00")),
		"MA_5_EXTENSION":                list(1.5, 2.5),
		"MA_20_EXTENSION":               list(3.5),
		"TECHNOLOGY_EXTENSION":          list("X"),
		"AUTOMOBILE_EXTENSION":          list("Y"),
		"ORDER_DETAIL_EXTENSION":        dict("overview", "{symbol} is here"),
		"FILE_CONTENT_EXTENSION":        " and more",
		"POPULATE_FILE_EXTENSION":       list("i.jpg", "j.jpg"),
		"CAR_STATUS_METADATA_EXTENSION": "a car",
		"LONG_WEATHER_EXTENSION":        dict("-1_day", dict("uvIndex", int64(6))),
		"PARKING_BRAKE_INSTRUCTION":     "pull",
		"INTERMEDIARY_CITIES":           list("A", "B"),
		"CREDIT_CARD_EXTENSION":         dict("123", dict("card_number", "123", "balance", 5.0)),
		"BOOKING_RECORD_EXTENSION":      dict("b1", dict("card_id", "123", "travel_cost", 5.0)),
		"FILES_TAIL_USED":               list("log.txt"),
	}
	return m
}

// FuzzBinding binds random arguments to every tool: the result is one value per parameter or a
// TypeError.
func FuzzBinding(f *testing.F) {
	f.Add("cd(1, folder=2)")
	f.Add("cd(x=1)")
	f.Add("wc('a', 'l', 3)")
	f.Add("book_flight('a', travel_to=1)")
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, call string) {
		c := callByName(call)
		if c == nil {
			return
		}
		args, keywords, err := c.Arguments(nil)
		if err != nil {
			return
		}
		known, ok := tools()[c.Func.(*py.Name).ID]
		if !ok {
			for _, known = range tools() { // any will do
				break
			}
		}
		bound, err := bind(known, args, keywords)
		if err != nil {
			if !py.IsException(err, "TypeError") {
				t.Errorf("%q on %s: %v", call, known.method.Name, err)
			}
			return
		}
		if len(bound) != len(known.method.Params) {
			t.Errorf("%q on %s: %d values for %d parameters", call, known.method.Name, len(bound),
				len(known.method.Params))
		}
	})
}

// FuzzLiteralCall compares direct calls of tools with their evaluation: equal results and states.
func FuzzLiteralCall(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Add(" cat ('a.txt')")
	f.Add("echo(content='a', file_name='a.txt',)")
	f.Add("(ls)()")
	f.Fuzz(func(t *testing.T, call string) {
		direct, evaluated := start(t, filesTask(), Settings{}), start(t, filesTask(), Settings{})
		if _, i, _, _ := direct.policy.literalCall(call); i < 0 {
			return
		}
		got := direct.policy.run(call)
		want := Outcome{}
		v, err := evaluated.policy.evaluate(call)
		if err == nil {
			want.Type = py.TypeName(v)
			want.Text, err = py.Result(v)
		}
		if err != nil {
			e := py.AsException(err)
			want = Outcome{Text: "Error during execution: " + e.Message, Exception: e.Class}
		}
		if got != want {
			t.Errorf("%q: got %+v, want %+v", call, got, want)
		}
		if d := differingAttrs(direct.policy.list[0], evaluated.policy.list[0]); d != nil {
			t.Errorf("%q: the attributes %v differ", call, d)
		}
	})
}

// FuzzDecoders decodes model text and executes the resulting calls without a panic.
func FuzzDecoders(f *testing.F) {
	for _, s := range seeds {
		f.Add("[" + s + "]")
	}
	f.Add("<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"a\": true}}\n</tool_call>")
	f.Add("<|python_tag|>{\"name\": \"ls\", \"parameters\": {}}; {\"name\": 5}")
	f.Add("```\n[f(a={'k': {}}, b=-x, c=g(1)[2:3], **d)]\n```")
	f.Fuzz(func(t *testing.T, text string) {
		for _, decode := range []func(string) ([]string, error){DecodeQwen, DecodeLlama31} {
			calls, err := decode(text)
			if err != nil {
				continue
			}
			e := start(t, filesTask(), Settings{})
			steps(t, e, calls)
			e.Verdict()
		}
	})
}
