package grpchatch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/populationgenomics/postern-go/internal/guesttext"
)

// A call that is not on the allowlist is refused before any of its messages is
// read, and before code of the host runs that the caller wrote:
//
//   - by tap, when its headers are in; or, where tap has to let it pass,
//   - by gate, which is where all methods go that the server does not know. It
//     knows of the allowed ones only.

// gate is the outermost stream interceptor.
func (h *Hatch) gate(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if !h.allowed[info.FullMethod] {
		return h.refuse(info.FullMethod)
	}
	leave, err := h.enter(stream.Context())
	if err != nil {
		return err
	}
	defer leave()
	defer h.survive(info.FullMethod, &err)
	return h.conceal(info.FullMethod, handler(srv, stream))
}

// guardUnary is what gate does, for a unary method on the allowlist. A unary
// interceptor would be too late, because the handler calls that
// with the message read.
func (h *Hatch) guardUnary(method string, handler grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (reply any, err error) {
		leave, err := h.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		defer h.survive(method, &err)
		reply, err = handler(srv, ctx, read, interceptor)
		return reply, h.conceal(method, err)
	}
}

// unimplemented is where calls of unregistered methods would go that the gate
// lets pass. There are none, as Serve wants every allowed method registered.
func unimplemented(any, grpc.ServerStream) error {
	return status.Error(codes.Unimplemented, "not a method of this hatch")
}

// maxTapped bounds how many calls tap has refused whose timers are running.
const maxTapped = 1024

// tap runs when the headers of a call are in, before there is a stream.
//
// To refuse a call here has a price if the call has a deadline: gRPC does not
// release its timer until that has passed, and the guest chooses when that is.
// Hence the bound. Beyond it, the gate refuses the call. Only what the server
// does not bring that far is then answered by the server itself, UNIMPLEMENTED:
// what is not of the form /service/method, or in an encoding it does not know.
func (h *Hatch) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if h.allowed[info.FullMethodName] {
		return ctx, nil
	}
	if _, timer := ctx.Deadline(); timer {
		if h.tapped.Add(1) > maxTapped {
			h.tapped.Add(-1)
			return ctx, nil
		}
		context.AfterFunc(ctx, func() { h.tapped.Add(-1) })
	}
	return ctx, h.refuse(info.FullMethodName)
}

func (h *Hatch) refuse(method string) error {
	h.log.Warn("refused a call that is not on the allowlist", "method", guesttext.Text(method))
	return status.Error(codes.PermissionDenied, method+" is not on the hatch allowlist")
}

// enter waits for one of the MaxCalls turns. A waiting call holds what its
// client has sent already, so not any number can wait.
func (h *Hatch) enter(ctx context.Context) (leave func(), err error) {
	select {
	case h.calls <- struct{}{}:
		return h.leave, nil
	default:
	}
	defer h.waiting.Add(-1)
	if h.waiting.Add(1) > int64(cap(h.calls)) {
		return nil, status.Error(codes.ResourceExhausted, "too many calls at a time on this hatch")
	}
	select {
	case h.calls <- struct{}{}:
		return h.leave, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (h *Hatch) leave() { <-h.calls }

const failed = "the host failed to serve this call"

// survive is deferred around all code of the servicer, to keep its panics from
// ending the host.
func (h *Hatch) survive(method string, err *error) {
	reason := recover()
	if reason == nil {
		return
	}
	h.log.Warn("a servicer panicked", "method", method,
		"type", guesttext.Text(fmt.Sprintf("%T", reason)), "error", guesttext.Text(fmt.Sprint(reason)))
	h.log.Debug("stack of the panic", "method", method, "stack", stack())
	*err = status.Error(codes.Internal, failed)
}

// conceal keeps from the guest an error that was not made for it, because that
// may have paths and addresses of the host in it.
func (h *Hatch) conceal(method string, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, end) {
			return status.FromContextError(end).Err()
		}
	}
	h.log.Warn("a servicer failed", "method", method,
		"type", guesttext.Text(fmt.Sprintf("%T", err)), "error", guesttext.Text(fmt.Sprint(err)))
	return status.Error(codes.Unknown, failed)
}

// stack is that of the panic being recovered. It has function names and lines,
// hence nothing of the guest's, unlike debug.Stack.
func stack() string {
	const depth, skip = 32, 3 // runtime.Callers, stack, survive
	pcs := make([]uintptr, depth)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(skip, pcs)])
	var b strings.Builder
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&b, "%s:%d", frame.Function, frame.Line)
		if !more {
			return b.String()
		}
		b.WriteString(" < ")
	}
}
