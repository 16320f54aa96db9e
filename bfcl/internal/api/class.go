// Package api holds the eight simulated classes of the benchmark. A class is a table line (name, document file, methods
// with their parameters) and an Instance, the live object of one side of one episode. Start with Classes and Lookup.
package api

import (
	"time"

	"rcgrpo/bfcl/internal/py"
)

// Class describes one simulated class. Methods are in source order, which is the order of its document file.
type Class struct {
	Name    string
	DocFile string // name without folder and ending: "gorilla_file_system"
	Methods []Method
	New     func() Instance
}

// Method is one tool. Instance.Call takes its position in Class.Methods.
type Method struct {
	Name   string
	Params []Param
}

// Param is one parameter, in the order of the signature, without self.
type Param struct {
	Name     string
	Default  py.Value // an immutable value; a method with a mutable default takes it from Shared
	Required bool
}

// Instance is one live simulated class of one side of an episode.
type Instance interface {
	// Load sets the initial state. A nil scenario gives the defaults. The instance owns scenario, a deep copy that
	// nobody else holds.
	Load(scenario *py.Dict, s *Shared, longContext bool) error
	// Call runs Methods[method] with one argument per parameter in order of the signature, defaults filled in. An
	// error is a *py.Exception.
	Call(method int, args []py.Value) (py.Value, error)
	// State lists the public attributes in order (bfcl/SPEC.md 7). The values are live.
	State() []Attr
	// Private lists what the fixtures record beside the state (current directory, hidden forces).
	Private() []Attr
	// Clone copies the instance; what it shares with others of its side stays shared through the memo.
	Clone(m *py.Memo) Instance
}

// Attr is one attribute of an instance.
type Attr struct {
	Name  string
	Value py.Value
}

// Shared is what the instances of one side of one episode have in common.
type Shared struct {
	Long          map[string]py.Value // the constants of long_context.json by name, not to be changed; nil without them
	Today         time.Time           // "today" of verify_traveler_information
	TweetTags     *py.List            // the one list object that is the default of post_tweet's tags
	TweetMentions *py.List            // the same for mentions
}

// NewShared gives fresh shared objects with Python's start values.
func NewShared(long map[string]py.Value, today time.Time) *Shared {
	return &Shared{Long: long, Today: today, TweetTags: py.NewList(), TweetMentions: py.NewList()}
}

// Clone copies the shared objects once per memo.
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

// Required and Optional write a signature.
func Required(name string) Param { return Param{Name: name, Required: true} }

// Optional is a parameter with an immutable default.
func Optional(name string, def py.Value) Param { return Param{Name: name, Default: def} }

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

// Classes gives the class table. Do not change it.
func Classes() []Class { return classes }

// Lookup finds a class by name.
func Lookup(name string) (*Class, bool) {
	for i := range classes {
		if classes[i].Name == name {
			return &classes[i], true
		}
	}
	return nil, false
}
