//! Small programs that use Anabranch as a library; see `examples/examples`.
