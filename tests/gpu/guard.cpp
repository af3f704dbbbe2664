// Registers one CUDA device in a CPU build of torch, so that autograd, autocast and GradScaler accept tensors that say
// they are on it (simulated_gpu.py). There is no kernel, no memory and no stream behind it. Preloaded as a library.

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

const Device kGpu{DeviceType::CUDA, 0};
const Stream kStream{Stream::DEFAULT, kGpu};

// Work on the device is done as soon as it is asked for, on one stream.
struct Guard final : c10::impl::DeviceGuardImplInterface {
    DeviceType type() const override { return DeviceType::CUDA; }
    Device exchangeDevice(Device) const override { return kGpu; }
    Device getDevice() const override { return kGpu; }
    void setDevice(Device) const override {}
    void uncheckedSetDevice(Device) const noexcept override {}
    Stream getStream(Device) const noexcept override { return kStream; }
    Stream getNewStream(Device, int) const override { return kStream; }
    Stream exchangeStream(Stream) const noexcept override { return kStream; }
    DeviceIndex deviceCount() const noexcept override { return 1; }
    void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
    void block(void*, const Stream&) const override {}
    bool queryEvent(void*) const override { return true; }
    void destroyEvent(void*, const DeviceIndex) const noexcept override {}
    bool queryStream(const Stream&) const override { return true; }
    void synchronizeStream(const Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

namespace at {

struct SimulatedHooks : CUDAHooksInterface {
    SimulatedHooks(CUDAHooksArgs) {}
    void init() const override {}
    bool isBuilt() const override { return true; }
    bool hasCUDA() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    DeviceIndex deviceCount() const override { return 1; }
    DeviceIndex current_device() const override { return 0; }
    DeviceIndex getCurrentDevice() const override { return 0; }
    bool isPinnedPtr(const void*) const override { return false; }
    Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
};
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, SimulatedHooks)

}  // namespace at
