package py

import (
	"errors"
	"fmt"
	"slices"
)

// Exception is a Python exception: its class name and its str().
type Exception struct{ Class, Message string }

func (e *Exception) Error() string { return e.Class + ": " + e.Message }

// Raise returns an Exception with a formatted message.
func Raise(class, format string, args ...any) error {
	if len(args) == 0 {
		return &Exception{Class: class, Message: format}
	}
	return &Exception{Class: class, Message: fmt.Sprintf(format, args...)}
}

// AsException returns err as an Exception; other errors become a RuntimeError.
func AsException(err error) *Exception {
	if e, ok := errors.AsType[*Exception](err); ok {
		return e
	}
	return &Exception{Class: "RuntimeError", Message: err.Error()}
}

// IsException reports whether err is an Exception of one of the classes.
func IsException(err error, classes ...string) bool {
	e, ok := errors.AsType[*Exception](err)
	return ok && slices.Contains(classes, e.Class)
}

// AttributeError returns the exception of v.name if v has no such attribute.
func AttributeError(v Value, name string) error {
	return Raise("AttributeError", "'%s' object has no attribute '%s'", TypeName(v), name)
}
