"""A program for pyACL as its public samples are: device, context, stream, memory both ways, events, a callback's thread, and
a model that is not modelled. Needs nothing but Python; numpy where it is there. Ends with 1 at the first thing that is not so."""

import sys

import acl

ACL_MEM_MALLOC_HUGE_FIRST, ACL_HBM_MEM = 0, 1
ACL_MEMCPY_HOST_TO_DEVICE, ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_DEVICE_TO_DEVICE = 1, 2, 3
ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_FEATURE_UNSUPPORTED = 107000, 200006


def same(found, expected, what):
    if found != expected:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")


def done(ret, what):
    same(ret, 0, what)


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        same([word for word in words if word not in str(error)], [], f"what `{error}` lacks")
    else:
        sys.exit(f"no {kind.__name__} with {words}")


def memory(stream):
    """Bytes go to the card, along on it and back, at once and in a stream."""
    sent = bytes(range(256)) * 16
    first, ret = acl.rt.malloc(len(sent), ACL_MEM_MALLOC_HUGE_FIRST)
    done(ret, "malloc")
    second, ret = acl.rt.malloc(len(sent), ACL_MEM_MALLOC_HUGE_FIRST)
    done(ret, "malloc")
    host, ret = acl.rt.malloc_host(len(sent))
    done(ret, "malloc_host")
    done(acl.rt.memcpy(first, len(sent), acl.util.bytes_to_ptr(sent), len(sent), ACL_MEMCPY_HOST_TO_DEVICE), "memcpy")
    done(acl.rt.memcpy_async(second, len(sent), first, len(sent), ACL_MEMCPY_DEVICE_TO_DEVICE, stream), "memcpy_async")
    done(acl.rt.memset_async(second, len(sent), 7, 16, stream), "memset_async")
    done(acl.rt.synchronize_stream(stream), "synchronize_stream")
    done(acl.rt.memcpy(host, len(sent), second, len(sent), ACL_MEMCPY_DEVICE_TO_HOST), "memcpy")
    same(acl.util.ptr_to_bytes(host, len(sent)), b"\x07" * 16 + sent[16:], "what came back")
    ret = acl.rt.memcpy(host, 8, second, 16, ACL_MEMCPY_DEVICE_TO_HOST)
    same(ret, ACL_ERROR_RT_PARAM_INVALID, "16 bytes into 8")
    same("8" in acl.get_recent_err_msg(), True, "the message names the size")
    done(acl.rt.free(first), "free")
    done(acl.rt.free(second), "free")
    done(acl.rt.free_host(host), "free_host")


def arrays():
    """The same by numpy."""
    try:
        import numpy
    except ImportError:
        return
    sent = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
    card, ret = acl.rt.malloc(sent.nbytes, ACL_MEM_MALLOC_HUGE_FIRST)
    done(ret, "malloc")
    host, ret = acl.rt.malloc_host(sent.nbytes)
    done(ret, "malloc_host")
    done(acl.rt.memcpy(card, sent.nbytes, acl.util.numpy_to_ptr(sent), sent.nbytes, ACL_MEMCPY_HOST_TO_DEVICE), "memcpy")
    done(acl.rt.memcpy(host, sent.nbytes, card, sent.nbytes, ACL_MEMCPY_DEVICE_TO_HOST), "memcpy")
    same(acl.util.ptr_to_numpy(host, (2, 3, 4), 11).tolist(), sent.tolist(), "the array that came back")
    raises(ValueError, ["contiguous"], lambda: acl.util.numpy_to_ptr(sent.transpose(2, 0, 1)))
    done(acl.rt.free(card), "free")
    done(acl.rt.free_host(host), "free_host")


def events(stream):
    start, ret = acl.rt.create_event()
    done(ret, "create_event")
    end, ret = acl.rt.create_event()
    done(ret, "create_event")
    done(acl.rt.record_event(start, stream), "record_event")
    done(acl.rt.record_event(end, stream), "record_event")
    done(acl.rt.synchronize_event(end), "synchronize_event")
    elapsed, ret = acl.rt.event_elapsed_time(start, end)
    done(ret, "event_elapsed_time")
    same(isinstance(elapsed, float) and elapsed >= 0, True, "elapsed time")
    done(acl.rt.destroy_event(start), "destroy_event")
    done(acl.rt.destroy_event(end), "destroy_event")


def callbacks(context, stream):
    """A thread answers reports until it is told not to; a callback gets the list that it was launched with."""
    seen, going_on = [], [True]

    def answer(arguments):
        done(acl.rt.set_context(arguments[0]), "set_context")
        while going_on[0]:
            acl.rt.process_report(arguments[1])

    thread, ret = acl.util.start_thread(answer, [context, 100])
    done(ret, "start_thread")
    done(acl.rt.subscribe_report(thread, stream), "subscribe_report")
    for number in range(3):
        done(acl.rt.launch_callback(seen.extend, [number, "text"], 1, stream), "launch_callback")
    done(acl.rt.synchronize_stream(stream), "synchronize_stream")
    going_on[0] = False
    done(acl.rt.unsubscribe_report(thread, stream), "unsubscribe_report")
    done(acl.util.stop_thread(thread), "stop_thread")
    same(seen, [0, "text", 1, "text", 2, "text"], "what the callbacks were given")


def refusals():
    """Codes of CANN for what is not modelled, exceptions for what no pyACL takes."""
    same(acl.mdl.load_from_file("resnet50.om"), (0, ACL_ERROR_FEATURE_UNSUPPORTED), "load_from_file")
    same("aclmdlLoadFromFile" in acl.get_recent_err_msg(), True, "the message names the function")
    same(acl.mdl.create_desc(), 0, "create_desc")
    same(acl.create_tensor_desc(1, [2, 3], 2), 0, "create_tensor_desc")
    same(acl.op.set_model_dir("op_models"), ACL_ERROR_FEATURE_UNSUPPORTED, "set_model_dir")
    raises(TypeError, ["acl.rt.malloc(bytes, policy)", "takes 2", "1 were given"], lambda: acl.rt.malloc(64))
    raises(TypeError, ["acl.rt.free", "address", "'here'", "expected ptr"], lambda: acl.rt.free("here"))
    raises(AttributeError, ["acl.rt.no_such_function", "functions.txt"], lambda: acl.rt.no_such_function)
    raises(AttributeError, ["acl.media", "functions.txt"], lambda: acl.media)


def main():
    done(acl.init(), "init")
    count, ret = acl.rt.get_device_count()
    same((count, ret), (8, 0), "devices")
    same(acl.get_soc_name().startswith("Ascend910"), True, "the SoC")
    done(acl.rt.set_device(1), "set_device")
    same(acl.rt.get_device(), (1, 0), "the device")
    context, ret = acl.rt.create_context(1)
    done(ret, "create_context")
    same(acl.rt.get_context(), (context, 0), "the context")
    same(acl.rt.get_run_mode(), (1, 0), "the program runs on the host")
    free, total, ret = acl.rt.get_mem_info(ACL_HBM_MEM)
    done(ret, "get_mem_info")
    same(0 < free <= total, True, "memory")
    stream, ret = acl.rt.create_stream()
    done(ret, "create_stream")
    memory(stream)
    arrays()
    events(stream)
    callbacks(context, stream)
    refusals()
    done(acl.rt.destroy_stream(stream), "destroy_stream")
    done(acl.rt.destroy_context(context), "destroy_context")
    done(acl.rt.reset_device(1), "reset_device")
    done(acl.finalize(), "finalize")
    from acl.rt import memcpy

    same(memcpy is acl.rt.memcpy, True, "acl.rt is a module")
    print("pyacl: as it should be")


main()
