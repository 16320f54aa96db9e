package py

import (
	"errors"
	"fmt"
)

// Exception is a Python exception: what it is called and what str() of it gives.
type Exception struct{ Class, Message string }

func (e *Exception) Error() string { return e.Class + ": " + e.Message }

// Raise gives an Exception with a formatted message.
func Raise(class, format string, args ...any) error {
	if len(args) == 0 {
		return &Exception{Class: class, Message: format}
	}
	return &Exception{Class: class, Message: fmt.Sprintf(format, args...)}
}

// AsException gives err as an Exception; a foreign error becomes a RuntimeError with its text.
func AsException(err error) *Exception {
	var e *Exception
	if errors.As(err, &e) {
		return e
	}
	return &Exception{Class: "RuntimeError", Message: err.Error()}
}

// IsException is true when err is an Exception of one of the classes.
func IsException(err error, classes ...string) bool {
	var e *Exception
	if !errors.As(err, &e) {
		return false
	}
	for _, c := range classes {
		if e.Class == c {
			return true
		}
	}
	return false
}

// AttributeError is what Python raises for v.name when v has no such attribute.
func AttributeError(v Value, name string) error {
	return Raise("AttributeError", "'%s' object has no attribute '%s'", TypeName(v), name)
}
