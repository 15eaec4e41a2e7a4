package profile

// A FieldError is a field of a [Profile] or a [Command] with a value that no
// run could have.
type FieldError struct {
	Field  string // "Profile.RequiredBinds[2]"
	Reason string
	Err    error // the cause, where there is one
}

func (e *FieldError) Error() string { return "postern: " + e.Field + " " + e.Reason }

// Unwrap returns the cause.
func (e *FieldError) Unwrap() error { return e.Err }
