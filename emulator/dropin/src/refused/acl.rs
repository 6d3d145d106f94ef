//! Functions `libascendcl.so` exports and the table does not have, by what they return.

crate::export::refuse_all! {
    AscendCl:
    status {
        aclDestroyGraphDumpOpt aclFinalizeCallbackRegister aclFinalizeCallbackUnRegister aclGenGraphAndDumpForOp
        aclGetCompileopt aclGetTensorDescDimRange aclGetTensorDescDimV2 aclInitCallbackRegister
        aclInitCallbackUnRegister aclSetCompileopt aclSetTensorConst aclSetTensorDynamicInput aclSetTensorFormat
        aclSetTensorOriginFormat aclSetTensorOriginShape aclSetTensorPlaceMent aclSetTensorShape
        aclSetTensorShapeRange aclSetTensorStorageFormat aclSetTensorStorageShape aclSetTensorValueRange
        aclTransTensorDescFormat acldumpGetExceptionInfoPath acldumpSaveExceptionInfo
        aclmdlAddDatasetBuffer aclmdlBundleGetModelId aclmdlBundleGetModelNum aclmdlBundleLoadFromFile
        aclmdlBundleLoadFromMem aclmdlBundleUnload aclmdlCreateAndGetOpDesc aclmdlDestroyAIPP
        aclmdlDestroyConfigHandle aclmdlDestroyDataset aclmdlDestroyDesc aclmdlDestroyExecConfigHandle aclmdlExecute
        aclmdlExecuteAsync aclmdlExecuteAsyncV2 aclmdlExecuteV2 aclmdlGetAippDataSize
        aclmdlGetAippType aclmdlGetCurOutputDims aclmdlGetDesc aclmdlGetDescFromFile aclmdlGetDescFromMem
        aclmdlGetDynamicBatch aclmdlGetDynamicHW aclmdlGetFirstAippInfo aclmdlGetInputDims aclmdlGetInputDimsRange
        aclmdlGetInputDimsV2 aclmdlGetInputDynamicDims aclmdlGetInputDynamicGearCount aclmdlGetInputIndexByName
        aclmdlGetOutputDims aclmdlGetOutputIndexByName aclmdlLoadFromFile aclmdlLoadFromFileWithMem
        aclmdlLoadFromFileWithQ aclmdlLoadFromMem aclmdlLoadFromMemWithMem aclmdlLoadFromMemWithQ aclmdlLoadWithConfig
        aclmdlQueryExeOMDesc aclmdlQuerySize aclmdlQuerySizeFromMem aclmdlRIAbort aclmdlRIDestroyRegisterCallback
        aclmdlRIDestroyUnregisterCallback aclmdlRIGetId aclmdlRIGetName aclmdlRIGetStreams aclmdlRIGetTasksByStream
        aclmdlRIKernelTaskGetAttribute aclmdlRISetName aclmdlRITaskDisable aclmdlRITaskGetParams aclmdlRITaskGetSeqId
        aclmdlRITaskGetType aclmdlRITaskSetParams aclmdlRIUpdate aclmdlSetAIPPAxSwapSwitch aclmdlSetAIPPByInputIndex
        aclmdlSetAIPPCropParams aclmdlSetAIPPCscParams aclmdlSetAIPPDtcPixelMean aclmdlSetAIPPDtcPixelMin
        aclmdlSetAIPPInputFormat aclmdlSetAIPPPaddingParams aclmdlSetAIPPPixelVarReci aclmdlSetAIPPRbuvSwapSwitch
        aclmdlSetAIPPScfParams aclmdlSetAIPPSrcImageSize aclmdlSetConfigOpt aclmdlSetDatasetTensorDesc
        aclmdlSetDynamicBatchSize aclmdlSetDynamicHWSize aclmdlSetExecConfigOpt aclmdlSetInputAIPP
        aclmdlSetInputDynamicDims aclmdlUnload aclopCast aclopCompile aclopCompileAndExecute aclopCompileAndExecuteV2
        aclopCreateHandle aclopCreateHandleForCast aclopCreateKernel aclopExecWithHandle aclopExecute aclopExecuteV2
        aclopInferShape aclopLoad aclopRegisterCompileFunc aclopSetAttrBool aclopSetAttrDataType aclopSetAttrFloat
        aclopSetAttrInt aclopSetAttrListBool aclopSetAttrListDataType aclopSetAttrListFloat aclopSetAttrListInt
        aclopSetAttrListListInt aclopSetAttrListString aclopSetAttrString aclopSetCompileFlag aclopSetKernelArgs
        aclopSetKernelWorkspaceSizes aclopSetMaxOpQueueNum aclopSetModelDir
        aclopUnregisterCompileFunc aclopUpdateParams aclprofDestroySubscribeConfig aclprofGetOpDescSize
        aclprofGetOpName aclprofGetOpNameLen aclprofGetOpNum aclprofGetOpType aclprofGetOpTypeLen
        aclprofModelSubscribe aclprofModelUnSubscribe

        aclrtAllocBuf aclrtAllocatorDestroyDesc aclrtAllocatorGetByStream
        aclrtAllocatorRegister aclrtAllocatorSetAllocAdviseFuncToDesc aclrtAllocatorSetAllocFuncToDesc
        aclrtAllocatorSetFreeFuncToDesc aclrtAllocatorSetGetAddrFromBlockFuncToDesc aclrtAllocatorSetObjToDesc
        aclrtAllocatorUnregister aclrtAppendBufChain aclrtBinaryGetDevAddress aclrtBinaryGetFunctionByEntry
        aclrtBinaryGetGlobal aclrtBinaryLoad aclrtBinarySetExceptionCallback aclrtCacheLastTaskExtendInfo
        aclrtCacheLastTaskOpInfo aclrtCheckMemType aclrtCmoAsync aclrtCmoAsyncWithBarrier aclrtCmoAsyncWithDesc
        aclrtCmoGetDescSize aclrtCmoSetDesc aclrtCmoWaitBarrier aclrtCntNotifyCreate aclrtCntNotifyDestroy
        aclrtCntNotifyGetId aclrtCntNotifyRecord aclrtCntNotifyReset aclrtCntNotifyWaitWithTimeout aclrtCopyBufRef
        aclrtCtxGetFloatOverflowAddr aclrtCtxGetSysParamOpt aclrtCtxSetSysParamOpt
        aclrtDestroyBinary aclrtDestroyGroupInfo aclrtDeviceGetByPCIBusId
        aclrtDeviceGetHostAtomicCapabilities aclrtDeviceGetLimit aclrtDeviceGetP2PAtomicCapabilities
        aclrtDeviceGetPCIBusId aclrtDeviceGetUuid aclrtDeviceL2CacheFlush aclrtDevicePeerAccessStatus
        aclrtDeviceSetLimit aclrtExceptionInfoCallbackRegister aclrtExceptionInfoCallbackUnregister aclrtFreeBuf
        aclrtFreeHostWithDevSync aclrtFreeWithDevSync aclrtFunctionGetAvailDynUbufPerBlock aclrtFunctionGetBinary
        aclrtFunctionGetParamCount aclrtFunctionGetParamInfo aclrtGetAllGroupInfo aclrtGetBufChainNum aclrtGetBufData
        aclrtGetBufDataLen aclrtGetBufFromChain aclrtGetBufUserData aclrtGetDevicesTopo aclrtGetEventAvailNum
        aclrtGetEventId aclrtGetFuncBySymbol aclrtGetFunctionAddr
        aclrtGetFunctionAttribute aclrtGetFunctionName aclrtGetFunctionSize aclrtGetGroupCount aclrtGetGroupInfoDetail
        aclrtGetHardwareSyncAddr aclrtGetLogicDevIdByPhyDevId aclrtGetLogicDevIdByUserDevId aclrtGetMemUceInfo
        aclrtGetMemUsageInfo aclrtGetMemcpyDescSize aclrtGetNotifyId aclrtGetOpExecuteTimeout
        aclrtGetOpTimeOutInterval aclrtGetPhyDevIdByLogicDevId aclrtGetPhyDevIdByUserDevId
        aclrtGetPrimaryCtxState aclrtGetStreamAttribute aclrtGetStreamAvailableNum
        aclrtGetStreamResLimit aclrtGetSymbolAddress aclrtGetSymbolSize aclrtGetSysParamOpt
        aclrtGetUserDevIdByLogicDevId aclrtGetUserDevIdByPhyDevId aclrtHostGetDevicePointer
        aclrtHostMemMapCapabilities aclrtHostRegisterV2 aclrtIpcMemImportPidInterServer aclrtIpcMemSetAttr
        aclrtKernelArgsGetHandleMemSize aclrtKernelArgsGetMemSize aclrtKernelArgsInitByUserMem
        aclrtKernelArgsParaUpdate aclrtLaunchKernelWithArgsArray aclrtLaunchSIMTKernelWithArgsArray
        aclrtLaunchSIMTKernelWithHostArgs aclrtMallocForTaskScheduler aclrtMallocHostWithCfg aclrtMemAllocManaged
        aclrtMemFlush aclrtMemGetAccess aclrtMemGetAddressRange aclrtMemGetAllocationPropertiesFromHandle
        aclrtMemInvalidate aclrtMemManagedAdvise aclrtMemManagedGetAttr aclrtMemManagedGetAttrs
        aclrtMemManagedPrefetchAsync aclrtMemManagedPrefetchBatchAsync aclrtMemMapNoAccess aclrtMemMapSelectedLink
        aclrtMemMapSetLink aclrtMemP2PMap aclrtMemRetainAllocationHandle aclrtMemSetPidToShareableHandleV2
        aclrtMemUceRepair aclrtMemcpyAsyncWithCondition aclrtMemcpyAsyncWithDesc aclrtMemcpyAsyncWithOffset
        aclrtMemcpyBatch aclrtMemcpyBatchAsync aclrtMemcpyBatchAsyncV2 aclrtMemcpyBatchV2 aclrtMemcpyFromSymbol
        aclrtMemcpyFromSymbolAsync aclrtMemcpyToSymbol aclrtMemcpyToSymbolAsync aclrtMemsetD32 aclrtMemsetD32Async
        aclrtNotifyBatchReset aclrtNotifySetImportPidInterServer aclrtNpuClearFloatOverFlowStatus
        aclrtNpuGetFloatOverFlowStatus aclrtPersistentTaskClean aclrtProfTrace aclrtQueryEvent
        aclrtRegisterCpuFunc aclrtRepairError aclrtReserveMemAddressNoUCMemory
        aclrtResetStreamResLimit aclrtSetBufDataLen
        aclrtSetBufUserData aclrtSetDeviceTaskAbortCallback aclrtSetGroup aclrtSetMemcpyDesc aclrtSetOpExecuteTimeOut
        aclrtSetOpExecuteTimeOutV2 aclrtSetOpExecuteTimeOutWithMs aclrtSetOpWaitTimeout aclrtSetStreamAttribute
        aclrtSetStreamResLimit aclrtSetSysParamOpt
        aclrtSetTsDevice aclrtSnapShotCallbackRegister aclrtSnapShotCallbackUnregister aclrtSnapShotProcessBackup
        aclrtSnapShotProcessLock aclrtSnapShotProcessRestore aclrtSnapShotProcessUnlock
        aclrtStreamWaitEventWithTimeout aclrtTaskUpdateAsync aclrtUnuseStreamResInCurrentThread
        aclrtUseStreamResInCurrentThread acltdtAddDataItem acltdtAddQueueRoute acltdtAllocBuf acltdtAppendBufChain
        acltdtAttachQueue acltdtBindQueueRoutes acltdtCleanChannel acltdtCopyBufRef acltdtCreateQueue acltdtDequeue
        acltdtDequeueData acltdtDestroyChannel acltdtDestroyDataItem acltdtDestroyDataset acltdtDestroyQueue
        acltdtDestroyQueueAttr acltdtDestroyQueueRoute acltdtDestroyQueueRouteList acltdtDestroyQueueRouteQueryInfo
        acltdtEnqueue acltdtEnqueueData acltdtFreeBuf acltdtGetBufChainNum acltdtGetBufData acltdtGetBufDataLen
        acltdtGetBufFromChain acltdtGetBufUserData acltdtGetDimsFromItem acltdtGetQueueAttr acltdtGetQueueRoute
        acltdtGetQueueRouteParam acltdtGetSliceInfoFromItem acltdtGrantQueue acltdtQueryChannelSize
        acltdtQueryQueueRoutes acltdtReceiveTensor acltdtSendTensor acltdtSetBufDataLen acltdtSetBufUserData
        acltdtSetQueueAttr acltdtSetQueueRouteQueryInfo acltdtStopChannel acltdtUnbindQueueRoutes
    }
    pointer {
        aclCreateGraphDumpOpt aclCreateTensorDesc aclGetTensorDescAddress aclGetTensorDescByIndex aclGetTensorDescName
        acldumpGetPath aclmdlCreateAIPP aclmdlCreateConfigHandle aclmdlCreateDataset aclmdlCreateDesc
        aclmdlCreateExecConfigHandle aclmdlGetDatasetBuffer aclmdlGetDatasetTensorDesc aclmdlGetInputNameByIndex
        aclmdlGetOpAttr aclmdlGetOutputNameByIndex aclmdlGetTensorRealName aclopCreateAttr
        aclprofCreateSubscribeConfig aclprofGetOpAttriValue aclrtAllocatorCreateDesc
        aclrtCreateBinary aclrtCreateGroupInfo acltdtCreateChannel
        acltdtCreateChannelWithCapacity acltdtCreateDataItem acltdtCreateDataset acltdtCreateQueueAttr
        acltdtCreateQueueRoute acltdtCreateQueueRouteList acltdtCreateQueueRouteQueryInfo acltdtGetDataAddrFromItem
        acltdtGetDataItem acltdtGetDatasetName
    }
    value 0 {
        aclGetCompileoptSize aclGetDataBufferSize aclGetTensorDescDim aclGetTensorDescElementCount
        aclGetTensorDescNumDims aclGetTensorDescSize aclmdlGetDatasetNumBuffers aclmdlGetInputSizeByIndex
        aclmdlGetNumInputs aclmdlGetNumOutputs aclmdlGetOutputSizeByIndex aclprofGetModelId aclprofGetOpDuration
        aclprofGetOpEnd aclprofGetOpStart acltdtGetDataSizeFromItem acltdtGetDatasetSize
        acltdtGetDimNumFromItem acltdtGetQueueRouteNum
    }
    value -1 {
        aclGetTensorDescFormat aclGetTensorDescType aclmdlGetInputDataType aclmdlGetInputFormat
        aclmdlGetOutputDataType aclmdlGetOutputFormat acltdtGetDataTypeFromItem acltdtGetTensorTypeFromItem
    }
    value 255 {
        aclprofGetOpFlag
    }
    nothing {
        aclAppLog aclDestroyTensorDesc aclSetTensorDescName aclopDestroyAttr aclopDestroyHandle

    }
}
