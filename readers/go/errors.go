package esdb

import "fmt"

// Kind says what sort of trouble an [Error] reports.
type Kind int

const (
	// Corrupt: the bytes break a rule of the format.
	Corrupt Kind = iota + 1
	// TooNew: the file has a major version that this package does not know.
	TooNew
	// TooLarge: the file may be sound, but decoding it needs more memory than [Limits] allow.
	TooLarge
	// Unreadable: the operating system did not give the bytes; Unwrap returns its error.
	Unreadable
	// Misused: a call asked for something that the file does not have, such as an unknown index.
	Misused
)

// String returns the kind as a word or two.
func (k Kind) String() string {
	switch k {
	case Corrupt:
		return "corrupt"
	case TooNew:
		return "too new"
	case TooLarge:
		return "too large"
	case Unreadable:
		return "unreadable"
	case Misused:
		return "not possible"
	}
	return "error"
}

// Error is the only type of error that this package returns. Find it with [errors.As].
type Error struct {
	Kind   Kind
	Path   string // the file, or "" if it was not opened by name
	Offset int64  // the byte of the file where the trouble was noticed, or -1 if it is at no byte
	What   string // what is wrong
	Err    error  // the cause, if another package reported it
}

// Error returns all of it in one line.
func (e *Error) Error() string {
	text := e.Kind.String() + ": " + e.What
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	if e.Offset >= 0 {
		text += fmt.Sprintf(" (at byte %d)", e.Offset)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func corruptAt(offset int64, format string, arguments ...any) *Error {
	return &Error{Kind: Corrupt, Offset: offset, What: fmt.Sprintf(format, arguments...)}
}

func misused(format string, arguments ...any) *Error {
	return &Error{Kind: Misused, Offset: -1, What: fmt.Sprintf(format, arguments...)}
}

// named adds the path of the file to an error of this package.
func (f *File) named(err error) error {
	if e, ok := err.(*Error); ok && e.Path == "" {
		e.Path = f.path
	}
	return err
}
