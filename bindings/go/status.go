package limiter

import (
	"context"
	"fmt"
	"time"
)

// Status is the C library's number for how a call ended. Numbers are never changed or reused.
type Status int32

// The statuses. Those above zero are answers, those below are errors.
const (
	StatusOK             Status = 0
	StatusPending        Status = 1
	StatusDenied         Status = 2
	StatusNever          Status = 3
	StatusInvalid        Status = -1
	StatusConfig         Status = -2
	StatusClosed         Status = -3
	StatusTimeout        Status = -4
	StatusCancelled      Status = -5
	StatusBackend        Status = -6
	StatusUnknownOutcome Status = -7
	StatusStale          Status = -8
	StatusForked         Status = -9
	StatusWouldDeadlock  Status = -10
	StatusOverloaded     Status = -11
	StatusResource       Status = -12
	StatusUnsupported    Status = -13
	StatusPanic          Status = -99
)

// String is the status's name in C, such as "LIMITER_DENIED".
func (s Status) String() string { return statusName(s) }

// Error is a failure that carries no numbers. Compare with errors.Is and the Err variables.
type Error struct {
	Status Status
	Detail string // what exactly was refused; may be empty
}

// Error is the status in words, and the detail.
func (e *Error) Error() string {
	if e.Detail == "" {
		return "limiter: " + statusMessage(e.Status)
	}
	return "limiter: " + e.Detail
}

// Is makes every failure of one status match that status's Err variable.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Status == e.Status && (t.Detail == "" || t.Detail == e.Detail)
}

// What errors.Is compares with. Each stands for the status of the same name in the C header.
var (
	// ErrDenied: not admitted within the wait that was allowed. Always a *DeniedError.
	ErrDenied error = &Error{Status: StatusDenied}
	// ErrNever: can never be admitted, so waiting is pointless. Always a *NeverError.
	ErrNever error = &Error{Status: StatusNever}
	// ErrInvalid: an argument makes no sense here.
	ErrInvalid error = &Error{Status: StatusInvalid}
	// ErrConfig: a URL, a setting or a limit was refused; the text says what is allowed.
	ErrConfig error = &Error{Status: StatusConfig}
	// ErrClosed: the client is closed.
	ErrClosed error = &Error{Status: StatusClosed}
	// ErrTimeout: a deadline of the library's own passed before anything was decided.
	ErrTimeout error = &Error{Status: StatusTimeout}
	// ErrCancelled: the wait was ended from elsewhere; nothing is held or charged.
	ErrCancelled error = &Error{Status: StatusCancelled}
	// ErrBackend: the backend cannot be reached or answered with an error; nothing was charged.
	ErrBackend error = &Error{Status: StatusBackend}
	// ErrUnknownOutcome: the answer was lost; it was charged once or not at all.
	ErrUnknownOutcome error = &Error{Status: StatusUnknownOutcome}
	// ErrStale: the permit is over: released before, expired, lost, or settled already.
	ErrStale error = &Error{Status: StatusStale}
	// ErrForked: the permit belongs to the process that forked this one.
	ErrForked error = &Error{Status: StatusForked}
	// ErrOverloaded: as many waits as WithMaxWaiting allows are under way; nothing was started.
	ErrOverloaded error = &Error{Status: StatusOverloaded}
	// ErrResource: the system refused a descriptor, a thread or memory.
	ErrResource error = &Error{Status: StatusResource}
	// ErrUnsupported: this limiter or backend cannot do that.
	ErrUnsupported error = &Error{Status: StatusUnsupported}
)

// DeniedError says that a call was not admitted in time, and when to come back. It matches
// ErrDenied, and context.DeadlineExceeded where a context's deadline set the limit.
type DeniedError struct {
	// RetryAfter from now is admitted if nobody else comes; where a semaphore denied it is a permit's
	// lease, as a hint. Never 0, except where the context's deadline passed before the library could
	// say.
	RetryAfter time.Duration
	// ResetAfter from now the limit is as good as new if nobody else comes.
	ResetAfter time.Duration
	// Waited is how long the call waited.
	Waited time.Duration
	// Limit and Remaining are the denying limit's units: at most, and left at this moment.
	Limit, Remaining uint64
	// Index is the denying limit's position in the limiter; -1 if no single one is meant.
	Index int
	// Degraded: decided by the failure policy because the backend could not answer.
	Degraded bool
	// MaybeCharged: Degraded, and the request was sent and its answer lost, so it was charged once or
	// not at all.
	MaybeCharged bool

	limiter  *Limiter // nil where it is not known here
	deadline bool
}

// Error says which limiter and which of its limits denied, and when to come back.
func (e *DeniedError) Error() string {
	text := "limiter: "
	if e.limiter != nil {
		text += e.limiter.name + ": "
	}
	switch {
	case e.Index >= 0 && e.limiter != nil:
		text += fmt.Sprintf("denied by limits[%d], %v", e.Index, e.limiter.limits[e.Index])
	case e.Index >= 0:
		text += fmt.Sprintf("denied by limits[%d]", e.Index)
	case e.Degraded:
		text += "denied by the failure policy"
	default:
		text += "denied"
	}
	if e.deadline {
		text += ": the wait would exceed the context's deadline"
	}
	if e.RetryAfter != 0 {
		text += fmt.Sprintf("; retry after %v", e.RetryAfter)
	}
	return text
}

// Timeout says, as net.Error does, whether a context's deadline set the limit.
func (e *DeniedError) Timeout() bool { return e.deadline }

// Is matches ErrDenied and, where a context's deadline set the limit, context.DeadlineExceeded.
func (e *DeniedError) Is(target error) bool {
	return target == ErrDenied || e.deadline && target == context.DeadlineExceeded
}

// NeverError says that a weight can never be admitted. It matches ErrNever.
type NeverError struct {
	Limit uint64 // the most that the refusing limit can ever admit
	Index int    // its position in the limiter; -1 if no single one is meant
}

// Error says which limit refuses.
func (e *NeverError) Error() string {
	return fmt.Sprintf("limiter: can never be admitted: limits[%d] allows at most %d", e.Index, e.Limit)
}

// Is matches ErrNever.
func (e *NeverError) Is(target error) bool { return target == ErrNever }

// errLost is ErrStale of a permit that was held until then.
var errLost error = &Error{StatusStale, "the lease was lost while the permit was held"}

// failure is the error for a status that is not OK and carries no numbers; nil for OK.
func failure(s Status) error {
	switch s {
	case StatusOK:
		return nil
	case StatusDenied:
		return &DeniedError{Index: -1}
	case StatusNever:
		return &NeverError{Index: -1}
	case StatusClosed: // the one that is met in a loop
		return ErrClosed
	case StatusStale:
		return ErrStale
	}
	return &Error{Status: s}
}
