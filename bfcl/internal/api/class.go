// Package api implements the eight simulated classes of the benchmark. A Class is a row of the
// class table (name, document file, methods with their parameters); an Instance is the object of
// one side of one episode. Start with Lookup. Package bfcl binds arguments and calls the instances;
// values are those of package py.
package api

import (
	"time"

	"rcgrpo/bfcl/internal/py"
)

// MaxReply limits the text of one reply, in bytes.
const MaxReply = 512 << 10

// Class describes one simulated class. Methods are in the order of the class's document file.
type Class struct {
	Name    string
	DocFile string // document file, without folder and extension: "gorilla_file_system"
	Methods []Method
	New     func() Instance // an instance without state; call its Load first
}

// Method is one tool.
type Method struct {
	Name   string
	Params []Param
	// Call executes the method on an instance of its class. args has one value per parameter,
	// defaults included. An error is a *py.Exception.
	Call func(in Instance, args []py.Value) (py.Value, error)
}

// Param is one parameter, in the order of the signature, without self.
type Param struct {
	Name     string
	Default  py.Value // value of an omitted argument, immutable; mutable defaults are in Shared
	Required bool
}

// Instance is the object of a simulated class on one side of an episode.
type Instance interface {
	// Load sets the initial state. A nil scenario gives the defaults. The instance takes ownership
	// of scenario. longContext adds the large constants of Shared to states and replies. The error is
	// a *py.Exception.
	Load(scenario *py.Dict, s *Shared, longContext bool) error
	// State returns the public attributes in order (bfcl/SPEC.md 7). The values are live.
	State() []Attr
	// Private returns the attributes that fixtures record besides the state (current directory,
	// hidden forces).
	Private() []Attr
	// Clone returns a deep copy. Objects that the instances of one side share stay shared if all of
	// them are cloned with the same memo. A nil memo suits an instance that has executed no call.
	Clone(m *py.Memo) Instance
}

// Hider is an Instance of which calls can reach and change more than State returns.
type Hider interface{ Hidden() []py.Value }

// Attr is one attribute of an instance.
type Attr struct {
	Name  string
	Value py.Value
}

// Shared contains the values that the instances of one side of an episode share.
type Shared struct {
	Long          map[string]py.Value // read-only constants of long_context.json by name; may be nil
	Today         time.Time           // "today" of verify_traveler_information
	TweetTags     *py.List            // the single list object that is the default of post_tweet's tags
	TweetMentions *py.List            // the single list object that is the default of post_tweet's mentions
}

// NewShared returns new shared objects with Python's initial values.
func NewShared(long map[string]py.Value, today time.Time) *Shared {
	return &Shared{Long: long, Today: today, TweetTags: py.NewList(), TweetMentions: py.NewList()}
}

// Clone copies the lists once per memo. The constants are not copied.
func (s *Shared) Clone(m *py.Memo) *Shared {
	if s == nil {
		return nil
	}
	if c, ok := m.Get(s); ok {
		return c.(*Shared)
	}
	c := *s
	c.TweetTags = s.TweetTags.Clone(m)
	c.TweetMentions = s.TweetMentions.Clone(m)
	m.Put(s, &c)
	return &c
}

// Required returns a parameter without a default.
func Required(name string) Param { return Param{Name: name, Required: true} }

// Optional returns a parameter with an immutable default.
func Optional(name string, def py.Value) Param { return Param{Name: name, Default: def} }

// on0 to on4 describe a method of the class T that takes 0 to 4 arguments, and onAll a method that takes its arguments
// as a list. name is the tool's name.
func on0[T Instance](name string, f func(T) py.Value) Method {
	return onAll(name, func(t T, _ []py.Value) py.Value { return f(t) })
}

func on1[T Instance](name string, f func(T, py.Value) py.Value, params ...Param) Method {
	return onAll(name, func(t T, a []py.Value) py.Value { return f(t, a[0]) }, params...)
}

func on2[T Instance](name string, f func(t T, a, b py.Value) py.Value, params ...Param) Method {
	return onAll(name, func(t T, a []py.Value) py.Value { return f(t, a[0], a[1]) }, params...)
}

func on3[T Instance](name string, f func(t T, a, b, c py.Value) py.Value, params ...Param) Method {
	return onAll(name, func(t T, a []py.Value) py.Value { return f(t, a[0], a[1], a[2]) }, params...)
}

func on4[T Instance](name string, f func(t T, a, b, c, d py.Value) py.Value, params ...Param) Method {
	return onAll(name, func(t T, a []py.Value) py.Value { return f(t, a[0], a[1], a[2], a[3]) }, params...)
}

func onAll[T Instance](name string, f func(T, []py.Value) py.Value, params ...Param) Method {
	return Method{name, params, func(in Instance, args []py.Value) (reply py.Value, err error) {
		defer catch(&err)
		return f(in.(T), args), nil
	}}
}

// guarded returns the method m with a check before it: unless allowed holds for the instance, the reply is the error
// refusal.
func guarded[T Instance](m Method, allowed func(T) bool, refusal string) Method {
	call := m.Call
	m.Call = func(in Instance, args []py.Value) (py.Value, error) {
		if !allowed(in.(T)) {
			return errorReply(refusal), nil
		}
		return call(in, args)
	}
	return m
}

// classes is the class table, one line per class.
var classes = []Class{
	{"GorillaFileSystem", "gorilla_file_system", gorillaFileSystemMethods, newGorillaFileSystem},
	{"MathAPI", "math_api", mathMethods, newMathAPI},
	{"MessageAPI", "message_api", messageMethods, newMessageAPI},
	{"TicketAPI", "ticket_api", ticketMethods, newTicketAPI},
	{"TwitterAPI", "posting_api", twitterMethods, newTwitterAPI},
	{"TradingBot", "trading_bot", tradingMethods, newTradingBot},
	{"TravelAPI", "travel_booking", travelMethods, newTravelAPI},
	{"VehicleControlAPI", "vehicle_control", vehicleMethods, newVehicleControlAPI},
}

// Classes returns the class table, which is read-only.
func Classes() []Class { return classes }

// Lookup returns a class by name.
func Lookup(name string) (*Class, bool) {
	for i := range classes {
		if classes[i].Name == name {
			return &classes[i], true
		}
	}
	return nil, false
}
