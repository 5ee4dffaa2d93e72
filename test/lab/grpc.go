//go:build linux

package lab

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// newGRPC is the interoperability service of gRPC, as an HTTP handler.
func newGRPC() *grpc.Server {
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, testService{})
	return s
}

type testService struct {
	testpb.UnimplementedTestServiceServer
}

// UnaryCall sends the payload back, and the authorization metadata as header
// and trailer.
func (testService) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	echo := metadata.Pairs("x-authorization", first(md.Get("authorization")), "x-bin-bin", first(md.Get("x-bin-bin")))
	if err := errors.Join(grpc.SetHeader(ctx, echo), grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "end"))); err != nil {
		return nil, err
	}
	if s := in.GetResponseStatus(); s.GetCode() != 0 {
		return nil, status.Error(codes.Code(s.GetCode()), s.GetMessage())
	}
	return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
}

// StreamingOutputCall sends as many payloads as asked.
func (testService) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	for _, p := range in.GetResponseParameters() {
		err := s.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: make([]byte, p.GetSize())}})
		if err != nil {
			return err
		}
	}
	return nil
}

// StreamingInputCall counts bytes.
func (testService) StreamingInputCall(s grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]) error {
	var n int32
	for {
		in, err := s.Recv()
		if err == io.EOF {
			return s.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: n})
		}
		if err != nil {
			return err
		}
		n += int32(len(in.GetPayload().GetBody()))
	}
}

// FullDuplexCall answers each message at once.
func (testService) FullDuplexCall(s grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	for {
		in, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
