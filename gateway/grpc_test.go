package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	rpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"sallyport/policy"
)

// rpcServer is the interoperability service of gRPC, as far as it is used.
type rpcServer struct {
	rpc.UnimplementedTestServiceServer
}

const (
	echoInitial  = "x-grpc-test-echo-initial"
	echoTrailing = "x-grpc-test-echo-trailing-bin"
)

func (rpcServer) UnaryCall(ctx context.Context, in *rpc.SimpleRequest) (*rpc.SimpleResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if err := grpc.SendHeader(ctx, metadata.MD{echoInitial: md[echoInitial], "x-auth": md["authorization"]}); err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, metadata.MD{echoTrailing: md[echoTrailing]}); err != nil {
		return nil, err
	}
	if s := in.ResponseStatus; s != nil {
		return nil, grpcstatus.Error(codes.Code(s.Code), s.Message)
	}
	return &rpc.SimpleResponse{Payload: &rpc.Payload{Body: make([]byte, in.ResponseSize)}}, nil
}

func (rpcServer) StreamingOutputCall(in *rpc.StreamingOutputCallRequest, s grpc.ServerStreamingServer[rpc.StreamingOutputCallResponse]) error {
	return respond(in.ResponseParameters, s.Send)
}

func respond(ps []*rpc.ResponseParameters, send func(*rpc.StreamingOutputCallResponse) error) error {
	for _, p := range ps {
		time.Sleep(time.Duration(p.IntervalUs) * time.Microsecond)
		if err := send(&rpc.StreamingOutputCallResponse{Payload: &rpc.Payload{Body: make([]byte, p.Size)}}); err != nil {
			return err
		}
	}
	return nil
}

func (rpcServer) StreamingInputCall(s grpc.ClientStreamingServer[rpc.StreamingInputCallRequest, rpc.StreamingInputCallResponse]) error {
	var sum int
	for {
		in, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&rpc.StreamingInputCallResponse{AggregatedPayloadSize: int32(sum)})
		}
		if err != nil {
			return err
		}
		sum += len(in.Payload.Body)
	}
}

func (rpcServer) FullDuplexCall(s grpc.BidiStreamingServer[rpc.StreamingOutputCallRequest, rpc.StreamingOutputCallResponse]) error {
	for {
		in, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := respond(in.ResponseParameters, s.Send); err != nil {
			return err
		}
	}
}

// grpcOrigin starts the service and returns a client of the sandbox.
func (l *lab) grpcOrigin(t testing.TB, change ...func(*policy.Rule)) rpc.TestServiceClient {
	t.Helper()
	ln := listen(t)
	cert, err := l.origins.Leaf("grpc.test")
	must(t, err)
	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(cert)))
	rpc.RegisterTestServiceServer(s, rpcServer{})
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(s.Stop)
	l.allow("grpc.test", portOf(ln), change...)
	l.load()
	return l.grpcClient(t, portOf(ln))
}

func (l *lab) grpcClient(t testing.TB, port uint16) rpc.TestServiceClient {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///grpc.test:"+strconv.Itoa(int(port)),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: l.roots, ServerName: "grpc.test"})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.dial(ctx, "grpc.test", port) }))
	must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return rpc.NewTestServiceClient(cc)
}

// TestTLS07GRPC: every kind of call, status, metadata and trailers pass, and
// a placeholder in the metadata is swapped.
func TestTLS07GRPC(t *testing.T) {
	l := newLab(t)
	client := l.grpcOrigin(t, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	t.Run("unary", func(t *testing.T) {
		ctx := metadata.AppendToOutgoingContext(ctx, echoInitial, "init", echoTrailing, "\x0a\x0b", "authorization", "Bearer $"+secretName)
		var head, tail metadata.MD
		r, err := client.UnaryCall(ctx, &rpc.SimpleRequest{ResponseSize: 300_000, Payload: &rpc.Payload{Body: make([]byte, 200_000)}},
			grpc.Header(&head), grpc.Trailer(&tail))
		must(t, err)
		if len(r.Payload.Body) != 300_000 || len(head[echoInitial]) != 1 || len(tail[echoTrailing]) != 1 || tail[echoTrailing][0] != "\x0a\x0b" {
			t.Fatalf("%d bytes, %v, %v", len(r.Payload.Body), head, tail)
		}
		if len(head["x-auth"]) != 1 || head["x-auth"][0] == "Bearer $"+secretName {
			t.Fatal("the placeholder reached the origin")
		}
	})
	t.Run("status", func(t *testing.T) {
		_, err := client.UnaryCall(ctx, &rpc.SimpleRequest{ResponseStatus: &rpc.EchoStatus{Code: 2, Message: "test status ☺ %"}})
		if s := grpcstatus.Convert(err); s.Code() != 2 || s.Message() != "test status ☺ %" {
			t.Fatal(err)
		}
	})
	t.Run("trailers only", func(t *testing.T) {
		if _, err := client.UnimplementedCall(ctx, &rpc.Empty{}); grpcstatus.Code(err) != codes.Unimplemented {
			t.Fatal(err)
		}
	})
	t.Run("server stream", func(t *testing.T) {
		interval := int32(pause.Microseconds())
		s, err := client.StreamingOutputCall(ctx, &rpc.StreamingOutputCallRequest{
			ResponseParameters: []*rpc.ResponseParameters{{Size: 10}, {Size: 10, IntervalUs: interval}, {Size: 10, IntervalUs: interval}}})
		must(t, err)
		began := time.Now()
		_, err = s.Recv()
		must(t, err)
		first, n := time.Since(began), 1
		for ; ; n++ {
			if _, err = s.Recv(); err != nil {
				break
			}
		}
		if !errors.Is(err, io.EOF) || n != 3 || first > time.Since(began)-pause {
			t.Fatalf("%d messages, %v, the first after %v of %v", n, err, first, time.Since(began))
		}
	})
	t.Run("client stream", func(t *testing.T) {
		s, err := client.StreamingInputCall(ctx)
		must(t, err)
		for range 10 {
			must(t, s.Send(&rpc.StreamingInputCallRequest{Payload: &rpc.Payload{Body: make([]byte, 1000)}}))
		}
		r, err := s.CloseAndRecv()
		must(t, err)
		if r.AggregatedPayloadSize != 10_000 {
			t.Fatal(r.AggregatedPayloadSize)
		}
	})
	t.Run("both ways", func(t *testing.T) {
		s, err := client.FullDuplexCall(ctx)
		must(t, err)
		for range 20 {
			must(t, s.Send(&rpc.StreamingOutputCallRequest{ResponseParameters: []*rpc.ResponseParameters{{Size: 100}}}))
			_, err := s.Recv()
			must(t, err)
		}
		must(t, s.CloseSend())
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		s, err := client.FullDuplexCall(ctx)
		if err == nil {
			_, err = s.Recv()
		}
		if grpcstatus.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
	})
}

// TestP6GRPCRefusal: a refused call fails with a status that says why.
func TestP6GRPCRefusal(t *testing.T) {
	l := newLab(t)
	client := l.grpcOrigin(t, func(r *policy.Rule) { r.Paths = []string{"/elsewhere/*"} })
	_, err := client.UnaryCall(t.Context(), &rpc.SimpleRequest{})
	e := l.denied(t, "http", policy.PathNotAllowed)
	want := "sallyport: path_not_allowed: "
	if s := grpcstatus.Convert(err); s.Code() != codes.PermissionDenied || len(s.Message()) < len(want) || s.Message()[:len(want)] != want {
		t.Fatalf("%v, request %s", err, e.Req)
	}
}
